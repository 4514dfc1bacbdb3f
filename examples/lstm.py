"""An LSTM learns to remember: of fifty numbers it adds the two that were marked, wherever they were.

This is the adding problem of Hochreiter and Schmidhuber's paper of 1997. Each step comes with a number from 0 to 1 and a mark
that is 1 twice in the sequence; the answer is read at the end. Always answering 1 is off by 0.41, in the root of the mean
square.

    python examples/lstm.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim

STEPS, BATCH, LENGTH, HIDDEN = 1500, 64, 50, 64

Params = dict[str, Any]


def sequences(count: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and marks f32[count, length, 2], and the sums of the marked numbers, f32[count]; a mark lies in each half."""
    rng = np.random.default_rng(seed)
    numbers, marks = rng.random((count, length), np.float32), np.zeros((count, length), np.float32)
    for half in (0, length // 2):
        marks[np.arange(count), half + rng.integers(0, length // 2, count)] = 1
    return np.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=1)


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)

    def weights(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    gates = np.zeros((4, HIDDEN), np.float32)
    gates[1] = 2  # the forget gates begin open, so that the state persists (Gers et al. 2000)
    return {
        "w": weights(2, 4 * HIDDEN),
        "u": weights(HIDDEN, 4 * HIDDEN),
        "b": gates.reshape(-1),
        "out": weights(HIDDEN, 1),
        "bias": np.ones(1, np.float32),
    }


def answer(params: Params, x: Any) -> Any:
    """f32[n, length, 2] -> f32[n], from the final state."""
    _, (h, _) = nn.lstm(x, params["w"], params["u"], params["b"])
    return nn.linear(h, params["out"], params["bias"])[:, 0]


def loss(params: Params, x: Any, true: Any) -> Any:
    return nn.mean_squared_error(answer(params, x), true)


def train() -> tuple[Params, np.ndarray]:
    """The parameters, and the loss of each step."""
    rate = optim.cosine_decay_schedule(5e-3, STEPS)
    optimiser = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(rate))
    step = rlx.train_step(loss, optimiser)
    params, values = initial(), []
    state = optimiser.init(params)
    for i in range(STEPS):
        params, state, value = step(params, state, *sequences(BATCH, LENGTH, seed=i + 1))
        values.append(float(value))
    return params, np.array(values)


def curve(values: np.ndarray, width: int = 60) -> str:
    """A line of bars, each the mean of some steps; full is the loss of guessing, 1/6."""
    means = values[: len(values) // width * width].reshape(width, -1).mean(axis=1)
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, int(np.ceil(8 * m * 6)))] for m in means)


def main() -> None:
    params, values = train()
    print(f"loss {curve(values)}")
    x, true = sequences(1000, LENGTH, seed=0)
    answers = np.asarray(rlx.jit(answer)(params, x))
    for i in range(5):
        places = np.flatnonzero(x[i, :, 1])
        terms = " + ".join(f"{x[i, k, 0]:.3f} (step {k:2})" for k in places)
        print(f"{terms} = {true[i]:.3f}, and the answer was {answers[i]:.3f}")
    print(
        f"off by {np.sqrt(np.mean((answers - true) ** 2)):.4f}, in the root of the mean square over {len(true)} new sequences"
    )


if __name__ == "__main__":
    main()

"""Optimisers side by side: the same small network, the same batches, a rate for each; how the loss falls and where it ends.

python examples/optimisers.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim

STEPS, BATCH, HIDDEN = 400, 64, 64

Params = dict[str, Any]

OPTIMISERS = {
    "sgd": optim.sgd(0.5),
    "momentum": optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adagrad": optim.adagrad(0.1),
    "rmsprop": optim.rmsprop(3e-3),
    "adam": optim.adam(1e-2),
    "adamw, warm-up": optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 3e-2, 40, STEPS)),
    "lion": optim.lion(optim.cosine_decay_schedule(3e-3, STEPS)),
    "adafactor": optim.adafactor(optim.cosine_decay_schedule(0.2, STEPS), min_dim_size_to_factor=32),
}


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    sizes = {"w0": (2, HIDDEN), "w1": (HIDDEN, HIDDEN), "w2": (HIDDEN, 2)}
    weights = {n: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for n, s in sizes.items()}
    return weights | {f"b{i}": np.zeros(n, np.float32) for i, n in enumerate((HIDDEN, HIDDEN, 2))}


def logits(params: Params, x: Any) -> Any:
    for i in range(2):
        x = nn.linear(x, params[f"w{i}"], params[f"b{i}"], activation="gelu")
    return nn.linear(x, params["w2"], params["b2"])


def loss(params: Params, x: Any, labels: Any) -> Any:
    return nn.cross_entropy(logits(params, x), labels)


def two_spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two arms that wind around each other, and which arm each is of."""
    rng = np.random.default_rng(seed)
    turn, labels = rng.random(count) ** 0.5 * 3 * np.pi, rng.integers(0, 2, count)
    angle = turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=-1) / 5
    return (points + 0.02 * rng.standard_normal(points.shape)).astype(np.float32), labels


def trained(optimiser: Any) -> tuple[Params, np.ndarray]:
    """The parameters after all steps, and the loss at each."""
    step = rlx.train_step(loss, optimiser)
    params, values = initial(), []
    state = optimiser.init(params)
    for i in range(STEPS):
        params, state, value = step(params, state, *two_spirals(BATCH, seed=i + 1))
        values.append(float(value))
    return params, np.array(values)


def curve(values: np.ndarray, width: int = 40) -> str:
    """A line of bars, each the mean of some steps; full is the loss of guessing, ln 2."""
    means = values[: len(values) // width * width].reshape(width, -1).mean(axis=1)
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, int(np.ceil(8 * m / np.log(2))))] for m in means)


def main() -> None:
    points, labels = two_spirals(2000, seed=0)
    right: dict[str, float] = {}
    for name, optimiser in OPTIMISERS.items():
        params, values = trained(optimiser)
        predictions = np.argmax(np.asarray(rlx.jit(logits)(params, points)), axis=-1)
        right[name] = float(np.mean(predictions == labels))
        print(f"{name:>15} {curve(values)} loss {values[-20:].mean():.4f}, right {right[name]:.1%}")
    print(f"best: {max(right, key=lambda name: right[name])}, {max(right.values()):.1%} of points they had not seen")


if __name__ == "__main__":
    main()

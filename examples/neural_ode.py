"""Learn the law of motion of a spiral from a few of its points: a neural ordinary differential equation.

The network is the velocity at a place. Runge and Kutta's method follows it for a while, the loss measures how far that is from
where the spiral went, and the gradient goes back through every stage of every step: a loop of the compiled program, and so is
its gradient.

    python examples/neural_ode.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim

STEPS, BATCH, AHEAD, EVERY, HIDDEN = 3000, 64, 10, 0.025, 64
"""Training steps, starts in each, points to follow from a start, time between two, and the network's width."""

Params = dict[str, Any]


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    sizes = {"w0": (2, HIDDEN), "w1": (HIDDEN, 2)}
    weights = {n: (rng.standard_normal(s) * 0.3).astype(np.float32) for n, s in sizes.items()}
    return weights | {"b0": np.zeros(HIDDEN, np.float32), "b1": np.zeros(2, np.float32)}


def velocity(params: Params, place: Any) -> Any:
    """f32[.., 2] -> f32[.., 2]; the cubes let a small network bend as the spiral does."""
    h = rlx.tanh(nn.linear(place * place * place, params["w0"], params["b0"]))
    return nn.linear(h, params["w1"], params["b1"])


def moved(params: Params, place: Any, time: float) -> Any:
    """A step of Runge and Kutta's method of fourth order."""
    a = velocity(params, place)
    b = velocity(params, place + 0.5 * time * a)
    c = velocity(params, place + 0.5 * time * b)
    d = velocity(params, place + time * c)
    return place + time / 6 * (a + 2 * b + 2 * c + d)


def loss(params: Params, starts: Any, followed: Any) -> Any:
    """Starts f32[batch, 2], and where the spiral was at the times after them, f32[ahead, batch, 2]."""

    def step(place: Any, target: Any) -> tuple[Any, Any]:
        place = moved(params, place, EVERY)
        return place, rlx.mean((place - target) ** 2)

    return rlx.mean(rlx.scan(step, starts, followed)[1])


def spiral(count: int = 400) -> np.ndarray:
    """The motion to be learnt, x' = A x³, in small time steps: f32[count, 2]."""
    law, fine = np.array([[-0.1, 2.0], [-2.0, -0.1]]), 20
    places = [np.array([2.0, 0.0])]
    for _ in range(count - 1):
        x = places[-1]
        for _ in range(fine):
            half = x + EVERY / fine / 2 * law @ x**3
            x = x + EVERY / fine * law @ half**3
        places.append(x)
    return np.array(places, np.float32)


def train(path: np.ndarray, steps: int = STEPS) -> tuple[Params, float]:
    optimiser = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(optim.cosine_decay_schedule(1e-2, steps)))
    step = rlx.train_step(loss, optimiser)
    params, value = initial(), np.float32(0)
    state = optimiser.init(params)
    for i in range(steps):
        starts = np.random.default_rng(i).integers(0, len(path) - AHEAD, BATCH)
        params, state, value = step(params, state, path[starts], path[starts + np.arange(1, AHEAD + 1)[:, None]])
    return params, float(value)


def followed(params: Params, place: Any) -> Any:
    """300 points from one on, f32[300, 2]; training follows ten."""
    return rlx.scan(lambda place, _: (moved(params, place, EVERY), place), place, None, length=300)[1]


def picture(true: np.ndarray, predicted: np.ndarray, rows: int = 21) -> str:
    """The spiral in dots, and where the network went, in o."""
    board = [[" "] * (2 * rows) for _ in range(rows)]
    for path, mark in ((true, "."), (predicted, "o")):
        for x, y in np.clip(path, -2.2, 2.2):
            board[int((2.2 - y) / 4.4 * (rows - 1))][int((x + 2.2) / 4.4 * (2 * rows - 1))] = mark
    return "\n".join("".join(row).rstrip() for row in board)


def main() -> None:
    path = spiral()
    params, _ = train(path)
    predicted = np.asarray(rlx.jit(followed)(params, path[0]))
    print(picture(path[:300], predicted))
    print(f"mean distance from the spiral over 300 points {np.linalg.norm(predicted - path[:300], axis=-1).mean():.3f}")


if __name__ == "__main__":
    main()

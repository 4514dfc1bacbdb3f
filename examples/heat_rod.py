"""Solve the heat equation with a network: no data, only the equation and its edges (a physics-informed network).

The temperature u(x, t) of a rod obeys u_t = u_xx / π², starts as sin(πx) and is 0 at both ends; so it is exp(-t)·sin(πx).
The network never sees that. Its loss has a first and a second derivative of the network itself, and the gradient of that
is what trains it.

    python examples/heat_rod.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import optim

STEPS, POINTS, HIDDEN = 1500, 128, 32

Params = dict[str, Any]


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    sizes = {"w0": (2, HIDDEN), "w1": (HIDDEN, HIDDEN), "w2": (HIDDEN, 1)}
    weights = {n: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for n, s in sizes.items()}
    return weights | {f"b{i}": np.zeros(n, np.float32) for i, n in enumerate((HIDDEN, HIDDEN, 1))}


def temperature(params: Params, point: Any) -> Any:
    """The network at one point (x, t)."""
    h = rlx.tanh(point @ params["w0"] + params["b0"])
    h = rlx.tanh(h @ params["w1"] + params["b1"])
    return (h @ params["w2"] + params["b2"])[0]


def residual(params: Params, point: Any) -> Any:
    """u_t - u_xx / π² at one point: 0 where the equation holds."""
    slope = rlx.grad(lambda p: temperature(params, p))(point)
    curvature = rlx.hessian(lambda p: temperature(params, p))(point)
    return slope[1] - curvature[0, 0] / np.float32(np.pi**2)


def loss(params: Params, inside: Any, edge: Any, on_edge: Any) -> Any:
    """Mean squared residual of the equation inside, plus ten times that of the known temperatures on the edge."""
    off = rlx.vmap(lambda p: residual(params, p))(inside)
    wrong = rlx.vmap(lambda p: temperature(params, p))(edge) - on_edge
    return rlx.mean(off * off) + 10.0 * rlx.mean(wrong * wrong)


def points(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points inside, points on the edge (the start and both ends), and the temperatures at those."""
    rng = np.random.default_rng(seed)
    inside = rng.random((POINTS, 2), np.float32)
    edge = rng.random((POINTS, 2), np.float32)
    third = POINTS // 3
    edge[:third, 1] = 0
    edge[third : 2 * third, 0] = 0
    edge[2 * third :, 0] = 1
    on_edge = np.where(edge[:, 1] == 0, np.sin(np.pi * edge[:, 0]), 0).astype(np.float32)
    return inside, edge, on_edge


def train(steps: int = STEPS) -> Params:
    optimiser = optim.adam(optim.cosine_decay_schedule(5e-3, steps))
    step = rlx.train_step(loss, optimiser)
    params = initial()
    state = optimiser.init(params)
    for i in range(steps):
        params, state, _ = step(params, state, *points(i))
    return params


def picture(u: np.ndarray) -> str:
    """Rows of time, columns of place; the hotter the denser."""
    shades = " .:-=+*#%@"
    return "\n".join("".join(shades[min(int(v * 10), 9)] for v in np.clip(row, 0, 1)) for row in u)


def main() -> None:
    params = train()
    t, x = np.meshgrid(np.linspace(0, 1, 12, dtype="f4"), np.linspace(0, 1, 60, dtype="f4"), indexing="ij")
    grid = np.stack([x.ravel(), t.ravel()], axis=-1)
    temperatures = np.asarray(rlx.vmap(temperature, in_axes=(None, 0))(params, grid)).reshape(t.shape)
    print(picture(temperatures))
    print(f"largest error {np.abs(temperatures - np.exp(-t) * np.sin(np.pi * x)).max():.4f} of temperatures up to 1")


if __name__ == "__main__":
    main()

"""What touches each number once or a few times: random numbers, Fourier transforms, and the update of an optimiser.

Systems draw other numbers from the same seed, so the comparison of 16 M of them is of mean and deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import optim

COUNT, PARAMETERS, RATE = 1 << 24, 50_000_000, 1e-3
ONE_THREAD: Mapping[str, Any] = {"options": {"cpu.threads": 1}}


def moments(numbers: Any) -> list[float]:
    """Mean and deviation, in float64."""
    values = np.asarray(numbers, np.float64)
    return [values.mean(), values.std()]


def parts(numbers: Any) -> list[np.ndarray]:
    """Real and imaginary parts."""
    values = np.asarray(numbers)
    return [values.real, values.imag]


def drawing(draw: Callable[..., Any], data: Data, config: Mapping[str, Any] | None = None) -> Program:
    compiled = rlx.jit(lambda key: draw(key, (COUNT,)), config=config)
    key = rlx.random.key(0)
    return Program(lambda: compiled(key), lambda: moments(compiled(key)))


def random(name: str, draw: Callable[..., Any]) -> Case:
    one = partial(drawing, draw, config=ONE_THREAD)
    # The mean of 16 M numbers is off by 2.4e-4 of their deviation, as a rule.
    return Case(
        f"random-{name}", f"random-{name}", lambda: {"count": COUNT}, partial(drawing, draw), rtol=1e-3, atol=2e-3,
        single=one, aim=0.70,
    )  # fmt: skip


def fft_data(size: int) -> Data:
    rng = np.random.default_rng(0)
    return {"x": (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(np.complex64)}


def fft(data: Data) -> Program:
    compiled, x = rlx.jit(rlx.fft.fft), data["x"]
    return Program(lambda: compiled(x), lambda: parts(compiled(x)))


def adamw_data() -> Data:
    rng = np.random.default_rng(0)
    return {name: rng.random(PARAMETERS, np.float32) - np.float32(0.5) for name in ("params", "grads")}


def adamw(data: Data) -> Program:
    optimiser = optim.adamw(RATE)

    def step(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    compiled = rlx.jit(step, donate=("params", "state"))
    grads = data["grads"]
    params_and_state = data["params"].copy(), optimiser.init(data["params"])

    def run() -> None:
        nonlocal params_and_state
        params_and_state = compiled(*params_and_state, grads)

    def results() -> list[Any]:
        return [compiled(data["params"].copy(), optimiser.init(data["params"]), grads)[0]]

    return Program(run, results)


CASES = (
    random("uniform", rlx.random.uniform),
    random("normal", rlx.random.normal),
    # Twenty rounds of butterflies on float32.
    *(Case(f"fft-{n}", "fft", partial(fft_data, 1 << n), fft, rtol=1e-4, atol=1e-2, aim=1.05) for n in (10, 15, 20)),
    # A parameter is read with its gradient and two averages, and all but the gradient are written.
    Case("adamw", "adamw", adamw_data, adamw, work=(28e-9 * PARAMETERS, "GB/s"), limit="copy"),
)
FURTHER = frozenset(c for c in CASES if c.kind == "adamw")
"""The case that runs only when it is selected by name: it takes 1.4 GB."""

"""Each optimiser against its published formula, written once more with NumPy in float64; eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import rlx_core as rlx
from rlx_core import optim

STEPS = 6
SHAPES = {"w": (3, 4), "b": (4,), "s": ()}
Leaf = np.ndarray
Rule = Callable[[Leaf, list[Leaf]], Leaf]
"""From a parameter and all gradients that it gets to what it is in the end."""


def tree(seed: int, dtype: Any, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"layer": [{n: np.asarray(scale * rng.standard_normal(s), dtype) for n, s in SHAPES.items()}]}


def sgd(p: Leaf, grads: list[Leaf], rate: float = 0.1) -> Leaf:
    for g in grads:
        p = p - rate * g
    return p


def momentum(p: Leaf, grads: list[Leaf], nesterov: bool = False) -> Leaf:
    t = 0.0 * p
    for g in grads:
        t = 0.9 * t + g
        p = p - 0.1 * (g + 0.9 * t if nesterov else t)
    return p


def adam(p: Leaf, grads: list[Leaf], decay: float = 0.0, b1: float = 0.9, b2: float = 0.999) -> Leaf:
    m = v = 0.0 * p
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        p = p - 0.1 * (m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + 1e-8) + decay * p)
    return p


def nadam(p: Leaf, grads: list[Leaf]) -> Leaf:
    m = v = 0.0 * p
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        ahead = 0.9 * m / (1 - 0.9 ** (t + 1)) + 0.1 * g / (1 - 0.9**t)
        p = p - 0.1 * ahead / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p


def lion(p: Leaf, grads: list[Leaf]) -> Leaf:
    m = 0.0 * p
    for g in grads:
        p = p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.01 * p)
        m = 0.99 * m + 0.01 * g
    return p


def rmsprop(p: Leaf, grads: list[Leaf], centered: bool = False, inertia: float = 0.0) -> Leaf:
    v = m = t = 0.0 * p
    for g in grads:
        v, m = 0.9 * v + 0.1 * g**2, 0.9 * m + 0.1 * g
        t = inertia * t - 0.1 * g / np.sqrt(v - (m**2 if centered else 0) + 1e-8)
        p = p + t
    return p


def adagrad(p: Leaf, grads: list[Leaf]) -> Leaf:
    s = 0.0 * p + 0.1
    for g in grads:
        s = s + g**2
        p = p - 0.1 * g / np.sqrt(s + 1e-7)
    return p


def adafactor(p: Leaf, grads: list[Leaf], rate: Callable[[int], float] = lambda t: min(0.01, t**-0.5)) -> Leaf:
    """Algorithms 4 and 5, with sums over rows and columns as the paper has them."""

    def rms(x: Leaf) -> Any:
        return np.sqrt(np.mean(x**2))

    rows, columns, v = np.zeros(p.shape[:1]), np.zeros(p.shape[1:]), 0.0 * p
    for t, g in enumerate(grads, 1):
        keep, squares = 1 - t**-0.8, g**2 + 1e-30
        if p.ndim == 2:
            rows, columns = (keep * a + (1 - keep) * squares.sum(i) for a, i in ((rows, 1), (columns, 0)))
            v = np.outer(rows, columns) / rows.sum()
        else:
            v = keep * v + (1 - keep) * squares
        u = g / np.sqrt(v)
        p = p - max(1e-3, rms(p)) * rate(t) * u / max(1.0, rms(u))
    return p


CASES: dict[str, tuple[Any, Rule]] = {
    "sgd": (optim.sgd(0.1), sgd),
    "momentum": (optim.sgd(0.1, 0.9), momentum),
    "nesterov": (optim.sgd(0.1, 0.9, nesterov=True), lambda p, g: momentum(p, g, nesterov=True)),
    "adam": (optim.adam(0.1), adam),
    "adam without memory": (optim.adam(0.1, b1=0.0, b2=0.0), lambda p, g: adam(p, g, b1=0.0, b2=0.0)),
    "nadam": (optim.adam(0.1, nesterov=True), nadam),
    "adamw": (optim.adamw(0.1, weight_decay=0.01), lambda p, g: adam(p, g, 0.01)),
    "lion": (optim.lion(0.1, weight_decay=0.01), lion),
    "rmsprop": (optim.rmsprop(0.1), rmsprop),
    "centered rmsprop": (
        optim.rmsprop(0.1, centered=True, momentum=0.5),
        lambda p, g: rmsprop(p, g, centered=True, inertia=0.5),
    ),
    "adagrad": (optim.adagrad(0.1), adagrad),
    "adafactor": (optim.adafactor(min_dim_size_to_factor=2), adafactor),
    "adafactor with a rate": (
        optim.adafactor(0.5, min_dim_size_to_factor=2),
        lambda p, g: adafactor(p, g, lambda t: 0.5),
    ),
    "a schedule": (
        optim.sgd(optim.piecewise_constant_schedule(0.1, {3: 0.5})),
        lambda p, g: sgd(sgd(p, g[:3]), g[3:], 0.05),
    ),
}


def trained(optimiser: Any, dtype: Any, step: Callable[..., Any]) -> Any:
    params = tree(0, dtype)
    state = optimiser.init(params)
    for i in range(STEPS):
        params, state = step(params, state, tree(i + 1, dtype))
    return params


def step_of(optimiser: Any) -> Callable[..., Any]:
    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimiser.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    return step


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "rtol"), [("f8", 1e-12), ("f4", 3e-6)])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_several_steps_are_those_of_the_formula(name: str, dtype: str, rtol: float, is_compiled: bool) -> None:
    optimiser, rule = CASES[name]
    step = step_of(optimiser)
    # The rate and the scale of a float64 program are constants of it; what a schedule says is f32.
    slack = 1e-6 if dtype == "f8" and ("adafactor" in name or name == "a schedule") else rtol
    found = trained(optimiser, dtype, rlx.jit(step) if is_compiled else step)

    start, grads = tree(0, dtype), [tree(i + 1, dtype) for i in range(STEPS)]
    for leaf in SHAPES:
        wanted = rule(np.float64(start["layer"][0][leaf]), [np.asarray(g["layer"][0][leaf], np.float64) for g in grads])
        result = np.asarray(found["layer"][0][leaf])
        assert result.dtype == np.dtype(dtype)
        np.testing.assert_allclose(result, wanted, rtol=slack, atol=slack)


def wide(tree: Any) -> Any:
    return optree.tree_map(lambda x: x.astype(np.float32), tree)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [rlx.f16, rlx.bf16], ids=str)
@pytest.mark.parametrize("name", ["momentum", "adamw", "lion", "rmsprop", "adagrad", "adafactor"])
def test_the_state_of_16_bit_parameters_is_f32_and_each_step_rounds_once(name: str, dtype: Any) -> None:
    optimiser, _ = CASES[name]
    params, grads = tree(0, dtype.numpy), tree(1, dtype.numpy)
    state = optimiser.init(params)
    found, after = rlx.jit(step_of(optimiser))(params, state, grads)

    exact, _ = rlx.jit(step_of(optimiser))(wide(params), optimiser.init(wide(params)), wide(grads))
    for leaf in SHAPES:
        assert found["layer"][0][leaf].dtype == dtype.numpy
        np.testing.assert_array_equal(
            found["layer"][0][leaf].astype(np.float32), exact["layer"][0][leaf].astype(dtype.numpy).astype(np.float32)
        )
    kinds = {np.asarray(x).dtype for x in optree.tree_leaves((state, after))}
    assert kinds <= {np.dtype("f4"), np.dtype("i4")}


def test_a_dtype_of_the_average_is_kept() -> None:
    optimiser = optim.adam(0.1, mu_dtype="bf16")
    params = np.ones(3, np.float32)
    _, (state, _) = optimiser.update(params, optimiser.init(params), params)
    assert str(state.mu.dtype) == "bfloat16"
    assert state.nu.dtype == np.float32


def test_the_first_steps_of_adam_keep_their_digits_in_f32() -> None:
    """`1 - 0.999**1` in f32 is wrong in its fifth digit, and with it the step."""
    optimiser = optim.adam(1.0)
    g = np.float32([1e-3, 1.0, 1e3])
    updates, _ = optimiser.update(g, optimiser.init(g))
    np.testing.assert_allclose(updates, -g / (np.abs(np.float64(g)) + 1e-8), rtol=3e-7)


def test_a_count_stays_where_its_type_ends() -> None:
    optimiser = optim.adam(0.1)
    params = np.ones(2, np.float32)
    state = optimiser.init(params)
    last = (state[0]._replace(count=np.int32(2**31 - 1)), state[1])
    updates, after = optimiser.update(params, last, params)
    assert after[0].count == 2**31 - 1
    assert np.all(np.isfinite(updates))


def test_what_adafactor_remembers_of_a_matrix_is_a_row_and_a_column() -> None:
    params = {"w": np.ones((256, 3, 128), np.float32), "b": np.ones(300, np.float32)}
    state = optim.adafactor().init(params)[0]
    assert (state.v_row["w"].shape, state.v_col["w"].shape, state.v["w"].shape) == ((3, 128), (256, 3), (0,))
    assert (state.v_row["b"].shape, state.v["b"].shape) == ((0,), (300,))

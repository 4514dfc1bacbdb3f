"""Derivatives at kinks, at NaN and at infinities, beyond what the laws ask of each op alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ops import activation, piecewise, standard_ops
from rlx_core.testing.cases import OpProgram, programs, wide
from rlx_core.transforms.vjp import vjp_graph

UNARY = [
    program
    for op in standard_ops()
    for program in programs((op,))
    if op.category == "elementwise"
    and [str(t) for t in program.sample.types] == ["f64[3, 4]"]
    and program.is_differentiable
    and program.sample.is_smooth
]


def slopes(program: OpProgram, points: np.ndarray) -> np.ndarray:
    x = np.zeros(12)
    x[: len(points)] = points
    with np.errstate(all="ignore"):
        return wide(vjp_graph(program.graph, ["x"]), [x.reshape(3, 4), np.ones((3, 4))])[1].reshape(-1)[: len(points)]


@pytest.mark.parametrize("program", UNARY, ids=repr)
def test_a_derivative_that_jumps_is_declared_as_a_kink(program: OpProgram) -> None:
    """Tried at the integers, where the standard functions change their formulas."""
    points = np.arange(-8.0, 9.0)
    jumps = []
    for point in points:
        near, at, beyond = slopes(program, np.array([point - 1e-7, point, point + 1e-7]))
        sides = [s for s in (near, beyond) if np.isfinite(s)]
        if sides and max(abs(s - at) for s in sides) > 1e-3 * (1 + min(abs(s) for s in sides)):
            jumps.append(point)
    declared = {float(k.at[0]) for k in program.op.kinks if k.attributes == program.sample.attributes}
    assert set(jumps) <= declared | {p for p in jumps if has_pole(program, p)}


def has_pole(program: OpProgram, point: float) -> bool:
    """Whether the function or its derivative is infinite there, which no choice of a side changes."""
    x = np.full((3, 4), point)
    with np.errstate(all="ignore"):
        return not (np.isfinite(wide(program.graph, [x])[0]).all() and np.isfinite(slopes(program, x[0])).all())


BOUNDED = {
    "relu": (activation.relu, 0, 1),
    "relu6": (piecewise.relu6, 0, 0),
    "hard_tanh": (piecewise.hard_tanh, 0, 0),
    "hard_sigmoid": (piecewise.hard_sigmoid, 0, 0),
    "hard_swish": (piecewise.hard_swish, 0, 1),
    "leaky_relu": (lambda x: piecewise.leaky_relu(x, slope=0.25), 0.25, 1),
    "elu": (piecewise.elu, 0, 1),
    "celu": (lambda x: piecewise.celu(x, alpha=2.0), 0, 1),
    "selu": (piecewise.selu, 0, piecewise.SELU_SCALE),
    "clip": (lambda x: rlx.clip(x, -1, 1), 0, 0),
    "maximum": (lambda x: rlx.maximum(x, 0.0), 0, 1),
    "minimum": (lambda x: rlx.minimum(x, 0.0), 1, 0),
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_at_infinity_a_derivative_is_its_limit_and_at_nan_it_is_nan(name: str, kind: Any, calculus: Any) -> None:
    function, left, right = BOUNDED[name]
    found = calculus.evaluate(calculus.gradient(function), np.array([-np.inf, np.inf, np.nan], kind))
    np.testing.assert_allclose(found, [left, right, np.nan], rtol=1e-3)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_compiled_gradient_at_nan_is_nan(name: str) -> None:
    """The native code keeps what the rule says: 19 elements are full vectors and a rest."""
    function = BOUNDED[name][0]
    x = np.linspace(-7, 7, 19, dtype=np.float32)
    x[[0, 5, 18]] = np.nan
    found = rlx.jit(rlx.grad(lambda v: rlx.sum(function(v))))(x)
    assert np.flatnonzero(np.isnan(found)).tolist() == [0, 5, 18]


@pytest.mark.parametrize("reduce", [rlx.max, rlx.min])
def test_a_row_whose_extreme_is_nan_has_no_other_derivative(reduce: Any) -> None:
    x = np.array([[1.0, np.nan, 3.0], [1.0, 3.0, 2.0]])
    gradient = rlx.grad(lambda v: rlx.sum(reduce(v, axis=1)))(x)
    _, tangents = rlx.jvp(lambda v: reduce(v, axis=1), (x,), (np.ones_like(x),))
    assert np.isnan(gradient[0]).all()
    assert np.isnan(tangents[0])
    assert gradient[1].sum() == tangents[1] == 1


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, np.inf])
def test_a_norm_has_derivative_0_at_0_and_in_elements_that_are_0(order: float) -> None:
    def norm(x: Any) -> Any:
        return rlx.linalg.vector_norm(x, ord=order)

    assert rlx.grad(norm)(np.zeros(3)).tolist() == [0, 0, 0]
    gradient = rlx.grad(norm)(np.array([0.0, -1.0, 2.0]))
    assert gradient[0] == 0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("order", [-1.0, -2.5])
def test_a_norm_of_negative_order_is_0_where_an_element_is(order: float) -> None:
    x = np.array([0.0, 1.0, 2.0])
    with np.errstate(divide="ignore"):
        assert rlx.linalg.vector_norm(x, ord=order) == np.linalg.norm(x, order) == 0
    np.testing.assert_allclose(rlx.linalg.vector_norm(x[1:], ord=order), np.linalg.norm(x[1:], order))

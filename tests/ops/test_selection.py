"""Where, clip, and the identities that change derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import ZERO
from rlx_core.ir.types import TensorType
from rlx_core.ops import selection as ops

NAN, INF = math.nan, math.inf


def test_a_number_as_the_condition_holds_where_it_is_not_0() -> None:
    found = ops.where(np.array([0.0, -0.0, NAN, 2.0, -1.0]), 1.0, 0.0)

    assert found.tolist() == [0, 0, 1, 1, 1]


def test_branches_are_promoted_and_the_condition_is_not() -> None:
    builder = Builder()
    count = builder.input("count", TensorType(dtype("i64"), (2,)))
    half, single = (builder.input(n, TensorType(dtype(n), (2,))) for n in ("f16", "f32"))

    assert ops.where(count, half, 0.5).dtype is half.dtype
    assert ops.where(count, half, single).dtype is single.dtype
    assert ops.where(half, count, single).dtype is dtype("f64")


def test_all_three_operands_broadcast() -> None:
    c, a, b = np.array([[True], [False]]), np.array([1.0, 2.0]), np.array(5.0)

    assert ops.where(c, a, b).tolist() == [[1, 2], [5, 5]]
    assert ops.where(np.array(True), a, np.zeros((3, 1))).shape == (3, 2)


def test_the_branch_not_taken_contributes_nothing_even_if_it_is_nan(calculus: Any) -> None:
    c, a, b = np.array([True, False]), np.array([1.0, NAN]), np.array([INF, 2.0])

    assert calculus.evaluate(ops.where, c, a, b).tolist() == [1, 2]
    assert calculus.evaluate(calculus.gradient(ops.where, 1), c, a, b).tolist() == [1, 0]
    assert calculus.evaluate(calculus.gradient(ops.where, 2), c, a, b).tolist() == [0, 1]


def test_a_missing_tangent_of_a_branch_keeps_dims_and_dtype(calculus: Any) -> None:
    c, a, b = np.array(True), np.float32([1.0]), np.zeros((2, 3), np.float32)

    found = calculus.evaluate(calculus.tangent(ops.where, 1), c, a, b)

    assert (found.shape, found.dtype) == ((2, 3), np.float32)


def test_clip_propagates_nan_and_lets_the_upper_bound_win() -> None:
    x = np.array([NAN, -5.0, 0.0, 5.0])

    np.testing.assert_array_equal(ops.clip(x, -1.0, 1.0), [NAN, -1, 0, 1])
    np.testing.assert_array_equal(ops.clip(x, 2.0, 1.0), [NAN, 1, 1, 1])
    np.testing.assert_array_equal(ops.clip(x, None, 1.0), [NAN, -5, 0, 1])
    np.testing.assert_array_equal(ops.clip(x, -1.0), [NAN, -1, 0, 5])
    np.testing.assert_array_equal(ops.clip(x), x)


def test_clip_has_the_dtype_of_x() -> None:
    for x in (np.float16([1.0]), np.int8([1]), np.uint8([1])):
        assert ops.clip(x, np.float64(0), np.int64(100)).dtype == x.dtype


def test_the_derivative_of_clip_is_1_on_the_closed_interval(calculus: Any) -> None:
    assert calculus.slopes(lambda x: ops.clip(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0]).tolist() == [0, 1, 1, 1, 0]


def test_outside_the_interval_the_bound_has_the_derivative(calculus: Any) -> None:
    x, lo, hi = np.array([-2.0, 0.0, 2.0, 3.0]), np.array(-1.0), np.array(1.0)

    assert calculus.evaluate(calculus.gradient(ops.clip, 1), x, lo, hi) == 1
    assert calculus.evaluate(calculus.gradient(ops.clip, 2), x, lo, hi) == 2


def test_no_derivative_passes_a_stop(calculus: Any) -> None:
    """x · stop(x) differentiates as x times a constant, in both modes."""
    assert calculus.slopes(lambda x: x * ops.stop_gradient(x), [3.0]).tolist() == [3.0]


@pytest.mark.parametrize(("factor", "slope"), [(None, 1.0), (0.25, 0.25)])
def test_straight_through_has_one_value_and_another_derivative(factor: Any, slope: float, calculus: Any) -> None:
    def function(x: Any) -> Any:
        return ops.straight_through(x * x, x, factor)

    assert calculus.evaluate(function, np.array([3.0])).tolist() == [9.0]
    assert calculus.slopes(function, [3.0]).tolist() == [slope]


def test_a_barrier_passes_values_and_derivatives(calculus: Any) -> None:
    x, n = np.array([2.0]), np.array([[7]])

    first, second = calculus.evaluate(ops.optimization_barrier, x, n)
    assert (first.tolist(), second.tolist()) == ([2.0], [[7]])
    assert ops.OptimizationBarrier.is_barrier
    assert calculus.slopes(lambda v: v * ops.optimization_barrier(v * v), [3.0]).tolist() == [27.0]

    def two(v: Any, w: Any) -> Any:
        a, b = ops.optimization_barrier(v, w)
        return a * b

    assert calculus.evaluate(calculus.gradient(two, 1), x, np.array([5.0])).tolist() == [2.0]
    assert calculus.evaluate(calculus.tangent(two, 0), x, np.array([5.0])).tolist() == [5.0]


def test_the_condition_is_declared_to_have_no_derivative() -> None:
    builder = Builder()
    c, a = builder.input("c", TensorType(dtype("bool"), (2,))), builder.input("a", TensorType(dtype("f32"), (2,)))
    y = ops.where(c, a, a)

    assert y.node.op.vjp(y, c, a, a, y=y)[0] is ZERO


def test_clip_with_the_bounds_the_wrong_way_round_is_the_upper_one_as_in_numpy() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, np.nan])
    for lo, hi in ((3.0, 1.0), (1.0, 2.0), (2.0, 2.0)):
        np.testing.assert_array_equal(rlx.clip(x, lo, hi), np.clip(x, lo, hi))
        np.testing.assert_array_equal(rlx.jit(lambda v, lo=lo, hi=hi: rlx.clip(v, lo, hi))(x), np.clip(x, lo, hi))
    slope = rlx.grad(lambda v: rlx.sum(rlx.clip(v, 1.0, 2.0)))(np.array([0.0, 1.0, 1.5, 2.0, 3.0]))
    np.testing.assert_array_equal(slope, [0, 1, 1, 1, 0])

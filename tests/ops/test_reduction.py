"""Reductions where they are hard: cancellation, ties, zeros, NaN, no elements, narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_core import ops as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops.structural import sum_axes

RNG = np.random.default_rng(5)


def test_a_variance_far_from_zero_keeps_its_digits() -> None:
    """The difference of two squares near 1e8 has none left in f32."""
    x = (1e4 + RNG.normal(size=4096)).astype(np.float32)

    found = float(rlx.var(x))

    # Elements near 1e4 are known to 5e-4; what is averaged is their squared distance from the mean.
    assert found == pytest.approx(float(np.var(x.astype(np.float64))), rel=1e-3)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_wide(kind: Any) -> None:
    """A plain f16 sum of ones stops at 2048, a bf16 one at 256."""
    ones = np.ones(5000, kind)

    assert float(rlx.mean(ones)) == 1.0
    assert float(rlx.sum(ones)) == float(np.asarray(5000.0).astype(kind))
    assert float(rlx.var(ones * np.asarray(300, kind))) == 0.0  # 300² overflows f16
    assert float(rlx.logsumexp(np.zeros(5000, kind))) == float(np.log(5000).astype(kind))


def test_the_gradient_of_a_long_mean_does_not_vanish_in_f16(calculus: Any) -> None:
    """100 000 is infinitely many in f16, yet its reciprocal is a number."""
    found = calculus.evaluate(calculus.gradient(lambda x: rlx.mean(x)), np.zeros(100_000, np.float16))

    assert found.dtype == np.float16
    assert found[0] == np.float16(1e-5)


@pytest.mark.parametrize("extreme", [rlx.max, rlx.min])
def test_three_ties_share_the_derivative(extreme: Callable[..., Any], calculus: Any) -> None:
    sign = 1 if extreme is rlx.max else -1
    x = sign * np.array([3.0, 1.0, 3.0, 2.0, 3.0])

    gradient = calculus.evaluate(calculus.gradient(lambda x: extreme(x)), x)
    tangent = calculus.evaluate(lambda x, t: calculus.jvp(lambda v: extreme(v))([t], x), x, np.array([1.0, 9, 2, 9, 3]))

    np.testing.assert_allclose(gradient, [1 / 3, 0, 1 / 3, 0, 1 / 3], rtol=1e-15)
    assert tangent == pytest.approx(2.0, rel=1e-15)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_product_differentiates_at_zeros(zeros: int, calculus: Any) -> None:
    """First and second order: with one zero only its own slot has a slope, with two no slot has one."""
    x = np.array([2.0, 3.0, 4.0, 5.0])
    x[:zeros] = 0

    found = calculus.evaluate(calculus.gradient(lambda x: rlx.prod(x)), x)
    second = calculus.evaluate(calculus.gradient(lambda x: calculus.gradient(lambda v: rlx.prod(v))(x)[0:1]), x)

    others = np.array([np.prod(np.delete(x, i)) for i in range(4)])
    pairs = np.array([0] + [np.prod(np.delete(x, [0, i])) for i in range(1, 4)])
    np.testing.assert_array_equal(found, others)
    np.testing.assert_array_equal(second, pairs)


EMPTY = np.zeros((2, 0), np.float32)
IDENTITIES: dict[str, tuple[Any, Any]] = {
    "sum": (lambda: rlx.sum(EMPTY, axis=1), [0, 0]),
    "prod": (lambda: rlx.prod(EMPTY, axis=1), [1, 1]),
    "mean": (lambda: rlx.mean(EMPTY, axis=1), [np.nan, np.nan]),
    "any": (lambda: rlx.any(EMPTY, axis=1), [False, False]),
    "all": (lambda: rlx.all(EMPTY, axis=1), [True, True]),
    "logsumexp": (lambda: rlx.logsumexp(EMPTY, axis=1), [-np.inf, -np.inf]),
    "count_nonzero": (lambda: rlx.count_nonzero(EMPTY, axis=1), [0, 0]),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_reduction_of_nothing_is_its_identity(name: str) -> None:
    call, wanted = IDENTITIES[name]

    np.testing.assert_array_equal(call(), wanted)


@pytest.mark.parametrize("function", [rlx.max, rlx.min, rlx.argmax, rlx.argmin])
def test_an_extreme_of_nothing_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ShapeError, match=r"axis 1 of .* has 0 elements"):
        function(EMPTY, axis=1)
    assert function(EMPTY, axis=0).shape == (0,)


def test_nan_wins_extremes_and_their_positions() -> None:
    x = np.array([1.0, np.nan, 3.0, np.nan])

    assert np.isnan(rlx.max(x))
    assert np.isnan(rlx.min(x))
    assert (rlx.argmax(x), rlx.argmin(x)) == (1, 1)
    assert rlx.count_nonzero(x) == 4


def test_the_first_of_equal_extremes_is_found() -> None:
    assert rlx.argmax(np.array([1, 3, 3])) == 1
    assert rlx.argmin(np.array([3, 1, 1])) == 1


def test_logsumexp_at_infinities_and_far_from_zero(calculus: Any) -> None:
    rows = np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [-np.inf, 2.0], [np.inf, 1.0]])

    found = rlx.logsumexp(rows, axis=1)
    gradient = calculus.evaluate(calculus.gradient(lambda x: rlx.logsumexp(x, axis=1)), rows[:3])

    np.testing.assert_allclose(found, [1000 + np.log(2), -np.inf, 2, np.inf], rtol=1e-15)
    # The result near 1000 is known to one ulp, 1e-13, and so is the exponent of each weight.
    np.testing.assert_allclose(gradient, [[0.5, 0.5], [0, 0], [0, 1]], rtol=1e-12)


def test_integer_sums_wrap_and_are_exact() -> None:
    assert sum_axes(np.array([2**53 + 1, 1]), axes=(0,)) == 2**53 + 2
    assert sum_axes(np.array([127, 1], np.int8), axes=(0,)) == -128


def test_a_standard_deviation_of_zero_has_slope_zero(calculus: Any) -> None:
    found = calculus.evaluate(calculus.gradient(lambda x: rlx.std(x)), np.full(3, 2.0))

    np.testing.assert_array_equal(found, np.zeros(3))

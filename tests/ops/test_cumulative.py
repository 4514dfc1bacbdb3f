"""Running reductions where they are hard: zeros, NaN, infinities, the first of equal extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.ops.cumulative import cum_log_sum_exp, cummax, cummin, cumprod, cumsum, linear_recurrence

INF = np.inf


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, [1, 3, 6]),
        ({"exclusive": True}, [0, 1, 3]),
        ({"reverse": True}, [6, 5, 3]),
        ({"exclusive": True, "reverse": True}, [5, 3, 0]),
    ],
    ids=str,
)
def test_exclusive_and_reverse_sums(attributes: dict[str, bool], wanted: list[int]) -> None:
    np.testing.assert_array_equal(cumsum(np.array([1, 2, 3]), axis=0, **attributes), wanted)


def test_narrow_floats_accumulate_wide() -> None:
    """A plain f16 running sum of ones stops at 2048."""
    assert cumsum(np.ones(3000, np.float16), axis=0)[-1] == 3000


def test_integer_sums_are_exact() -> None:
    assert cumsum(np.array([2**53, 1]), axis=0)[-1] == 2**53 + 1


@pytest.mark.parametrize("x", [[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0, 0.0], [2.0, 3.0, 4.0, 5.0]], ids=str)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_products_differentiate_at_zeros(x: list[float], exclusive: bool, reverse: bool, calculus: Any) -> None:
    values, g = np.array(x), np.array([1.0, -2.0, 3.0, 5.0])
    function = calculus.vjp(lambda v: cumprod(v, axis=0, exclusive=exclusive, reverse=reverse))

    found = calculus.evaluate(function, g, values)

    order = slice(None, None, -1 if reverse else 1)
    line, weights = values[order], g[order]
    wanted = np.zeros(4)
    for j in range(4):
        factors = range(j if exclusive else j + 1)
        for i in factors:
            wanted[i] += weights[j] * np.prod([line[k] for k in factors if k != i])
    np.testing.assert_allclose(found, wanted[order], rtol=1e-14)


def test_a_recurrence_does_not_read_its_first_factor() -> None:
    found = linear_recurrence(np.array([np.nan, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]), axis=0)

    np.testing.assert_array_equal(found, [1, 3, 10])


def test_nan_stays_in_a_running_extreme() -> None:
    x = np.array([1.0, 3.0, np.nan, 5.0])

    np.testing.assert_array_equal(cummax(x, axis=0), [1, 3, np.nan, np.nan])
    np.testing.assert_array_equal(cummin(x, axis=0), [1, 1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, [1, 2 + 4 + 8, 0, 16]),
        ({"exclusive": True}, [2, 4 + 8 + 16, 0, 0]),
        ({"reverse": True}, [0, 0, 0, 1 + 2 + 4 + 8 + 16 - 0]),
        ({"exclusive": True, "reverse": True}, [0, 0, 0, 1 + 2 + 4 + 8 - 0]),
    ],
    ids=str,
)
def test_the_first_that_attained_a_running_maximum_has_its_gradient(
    attributes: dict[str, bool], wanted: list[float], calculus: Any
) -> None:
    """The maxima forward are 1 3 3 3 9, backward all 9: ties go to the element met first."""
    x, g = np.array([1.0, 3.0, 3.0, 2.0, 9.0]), np.array([1.0, 2.0, 4.0, 8.0, 16.0])

    (found,) = [calculus.evaluate(calculus.vjp(lambda v: cummax(v, axis=0, **attributes)), g, x)]

    np.testing.assert_array_equal(found, [wanted[0], wanted[1], 0, wanted[2], wanted[3]])


def test_running_log_sum_exp_neither_overflows_nor_loses_minus_infinity(calculus: Any) -> None:
    x = np.array([-INF, -INF, 1000.0, 1000.0, -1000.0])

    found = cum_log_sum_exp(x, axis=0)
    gradient = calculus.evaluate(calculus.gradient(lambda v: cum_log_sum_exp(v, axis=0)[2:]), x)

    np.testing.assert_allclose(found, [-INF, -INF, 1000, 1000 + np.log(2), 1000 + np.log(2)], rtol=1e-15)
    np.testing.assert_allclose(gradient, [0, 0, 2, 1, 0], rtol=1e-12)
    np.testing.assert_array_equal(cum_log_sum_exp(np.array([INF, 0.0]), axis=0), [INF, INF])

"""The special functions against SciPy's and the C library's, in units in the last place of float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import scipy.special

from rlx_core.ops import special

RNG = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def _as_the_interpreter_calls_them() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def ulps(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error in units in the last place; NaN and infinities must be where they are wanted."""
    is_same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    errors = np.abs(found - wanted) / np.spacing(np.abs(wanted))
    return float(np.max(np.where(is_same, 0, errors)))


def test_erf_is_within_a_few_ulp_on_every_interval() -> None:
    x = np.concatenate([RNG.uniform(-6, 6, 4000), RNG.uniform(-1e-3, 1e-3, 500), [0.0, 0.46875, -0.46875, 4.0, 5e-324]])

    assert (
        ulps(special.erf_array(x), np.vectorize(math.erf)(x)) <= 4
    )  # measured 4; Cody bounds the method, not its rounding


def test_erfc_keeps_its_relative_accuracy_in_the_tail() -> None:
    """Where 1 - erf(x) would be 0, or e^(-x²) would carry x² ulp of the rounding of x²."""
    x = np.concatenate([RNG.uniform(-6, 26, 4000), [0.0, 0.46875, 4.0, 26.5]])

    assert ulps(special.erfc_array(x), np.vectorize(math.erfc)(x)) <= 8  # measured 7, in the tail


def test_erf_and_erfc_are_right_at_the_ends() -> None:
    ends = np.array([np.inf, -np.inf, np.nan, -0.0, 1e300, -1e300])

    np.testing.assert_array_equal(special.erf_array(ends), [1, -1, np.nan, 0, 1, -1])
    np.testing.assert_array_equal(special.erfc_array(ends), [0, 2, np.nan, 1, 0, 2])
    assert np.signbit(special.erf_array(np.array(-0.0)))


def test_erfinv_is_within_a_few_ulp_up_to_the_last_number_below_1() -> None:
    x = np.concatenate(
        [RNG.uniform(-1, 1, 4000), 1 - 10.0 ** RNG.uniform(-16, -1, 1000), [1 - 2.0**-53, 1e-300, 0.5, 0.1]]
    )

    assert ulps(special.erfinv_array(x), scipy.special.erfinv(x)) <= 8  # measured 5


def test_erfinv_is_infinite_at_1_and_undefined_beyond() -> None:
    found = special.erfinv_array(np.array([1, -1, 1.5, np.nan, 0]))

    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan, np.nan, 0])


def test_lgamma_agrees_with_scipy_and_is_infinite_at_poles() -> None:
    x = np.concatenate([RNG.uniform(0, 30, 2000), RNG.uniform(-8, 0, 500), 10.0 ** RNG.uniform(-10, 300, 500)])

    # Relative to 1 + |y|: near its zeros ln Γ is a difference of larger terms. Measured 8 epsilon.
    np.testing.assert_allclose(special.lgamma_array(x), scipy.special.gammaln(x), rtol=4e-15, atol=4e-15)
    np.testing.assert_array_equal(
        special.lgamma_array(np.array([0.0, -1, -2, np.inf, 1e306, np.nan, 1, 2])), [np.inf] * 5 + [np.nan, 0, 0]
    )


def test_digamma_agrees_with_scipy() -> None:
    x = np.concatenate([RNG.uniform(0.01, 30, 2000), RNG.uniform(-0.9, -0.1, 200), 10.0 ** RNG.uniform(1, 300, 200)])

    np.testing.assert_allclose(special.digamma_array(x), scipy.special.digamma(x), rtol=4e-15, atol=4e-15)


def test_digamma_beside_a_pole_satisfies_its_recurrence_exactly() -> None:
    """ψ(x) = ψ(x + 8) - Σ 1/(x + k) in rational arithmetic: the reflection must take the period off x before π multiplies it."""
    x = -7.9999720664135605
    wanted = Fraction(float(special.digamma_array(np.array(x + 8)))) - sum(1 / (Fraction(x) + k) for k in range(8))

    assert float(special.digamma_array(np.array(x))) == pytest.approx(float(wanted), rel=4e-16)


def test_digamma_at_its_poles() -> None:
    found = special.digamma_array(np.array([0.0, -0.0, -1, -2, np.inf, np.nan]))

    np.testing.assert_array_equal(found, [-np.inf, np.inf, np.nan, np.nan, np.inf, np.nan])


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_polygamma_agrees_with_scipy_on_the_right(order: int) -> None:
    x = np.concatenate([RNG.uniform(0.05, 30, 2000), 10.0 ** RNG.uniform(1, 10, 200)])

    np.testing.assert_allclose(special.polygamma_array(order, x), scipy.special.polygamma(order, x), rtol=4e-15)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_polygamma_satisfies_its_recurrence_on_the_left(order: int) -> None:
    """ψₙ(x) = ψₙ(x + 1) - (-1)ⁿ n! / xⁿ⁺¹: the reflection joins both half-lines."""
    x = RNG.uniform(-4.9, -0.1, 500)
    x = x[np.abs(x - np.round(x)) > 0.01]
    step = (-1) ** order * math.factorial(order) / x ** (order + 1)

    # Both sides cancel beside a pole: the tolerance is relative to the larger term there.
    scale = np.abs(step) + np.abs(special.polygamma_array(order, x))
    assert (
        np.max(np.abs(special.polygamma_array(order, x) - special.polygamma_array(order, x + 1) + step) / scale) < 1e-13
    )

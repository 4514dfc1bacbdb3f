"""Modified Bessel functions of the first kind of orders 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from rlx_core.functions.custom_jvp import custom_jvp
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import exp, sqrt
from rlx_core.ops.arithmetic import absolute, maximum, minimum, multiply, sign
from rlx_core.ops.comparison import equal, isinf, less_equal
from rlx_core.ops.selection import where
from rlx_core.special.operands import in_wide

__all__ = ["i0", "i0e", "i1", "i1e"]

NEAR = 8.0
"""The boundary from which the functions are computed as polynomials of 1/x."""
DEGREE = 28


@checked_call
def i0e(x: Any) -> Any:
    """e^-|x| I₀(x)."""
    return in_wide("i0e", _i0e, x)


@checked_call
def i1e(x: Any) -> Any:
    """e^-|x| I₁(x)."""
    return in_wide("i1e", _i1e, x)


@checked_call
def i0(x: Any) -> Any:
    """I₀(x), the modified Bessel function of order 0, which grows like e^|x| / √(2π|x|)."""
    return in_wide("i0", lambda x: _grown(x, _i0e(x), np.inf), x)


@checked_call
def i1(x: Any) -> Any:
    """I₁(x), the derivative of `i0`."""
    return in_wide("i1", lambda x: _grown(x, _i1e(x), x), x)


def _grown(x: Any, scaled: Any, end: Any) -> Any:
    """Return e^|x| times the scaled function, and `end` where x is infinite."""
    is_end = isinf(x)
    return where(is_end, end, multiply(exp(absolute(where(is_end, 0.0, x))), scaled))


@custom_jvp
def _i0e(x: Any) -> Any:
    return _scaled(0, x)


@custom_jvp
def _i1e(x: Any) -> Any:
    return _scaled(1, x)


# I₀' = I₁ and I₁' = I₀ - I₁ / x, which is 1/2 at 0; and e^-|x| has the slope -sign(x) e^-|x|.
_i0e.defjvps(lambda t, y, x: t * (_i1e(x) - sign(x) * y))
_i1e.defjvps(lambda t, y, x: t * (_i0e(x) - where(equal(x, 0), 0.5, y / where(equal(x, 0), 1.0, x)) - sign(x) * y))


def _scaled(order: int, x: Any) -> Any:
    """Return the scaled function: a polynomial of x up to `NEAR`, and beyond it one of 1/x divided by the square root of x."""
    size = absolute(x)
    near = _polynomial(_tables(order)[0], minimum(size, NEAR) * (2 / NEAR) - 1)
    clamped = maximum(size, NEAR)
    beyond = _polynomial(_tables(order)[1], (2 * NEAR) / clamped - 1) / sqrt(clamped)
    return where(less_equal(size, NEAR), near * x if order else near, beyond * sign(x) if order else beyond)


@lru_cache
def _tables(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return Chebyshev coefficients of e^-x I(x), over x for order 1, for x = 4t + 4, and of √x e^-x I(x) for 16/x = t + 1.

    The division by x is needed because a polynomial that is 0 at 0 would lose its relative precision there.
    """

    def near(t: np.ndarray) -> np.ndarray:
        x = NEAR / 2 * (t + 1)
        return _quadrature(order, x) / (x if order else 1.0)

    def far(t: np.ndarray) -> np.ndarray:
        x = 2 * NEAR / (t + 1)
        return _quadrature(order, x) * np.sqrt(x)

    return _interpolated(near), _interpolated(far)


def _interpolated(function: Callable[[np.ndarray], np.ndarray]) -> tuple[float, ...]:
    """Return the coefficients of the polynomial that agrees with a function at Chebyshev nodes, each with about one rounding."""
    count = DEGREE + 1
    odd_numbers = 2 * np.arange(count) + 1
    values = function(np.cos(math.pi / (2 * count) * odd_numbers))
    # Angles are multiples of π / 2 count, reduced as integers.
    products = (values * np.cos(math.pi / (2 * count) * (odd_numbers * k % (4 * count))) for k in range(count))
    return tuple((2 if k else 1) / count * math.fsum(terms.tolist()) for k, terms in enumerate(products))


def _quadrature(order: int, x: np.ndarray) -> np.ndarray:
    """Return e^-x I(x) = 1/π ∫₀^π e^(x (cos θ - 1)) cos(order θ) dθ by the trapezoidal rule, with exponential convergence.

    Source:
        Digital Library of Mathematical Functions, 10.32.3.
    """
    theta = np.linspace(0, math.pi, 4001)
    values = np.exp(-2 * np.multiply.outer(x, np.sin(theta / 2) ** 2)) * np.cos(order * theta)
    return np.asarray((values[..., 1:-1].sum(-1) + 0.5 * (values[..., 0] + values[..., -1])) / 4000)


def _polynomial(coefficients: tuple[float, ...], t: Any) -> Any:
    """Return a Chebyshev series, by Clenshaw's recurrence."""
    before: Any = 0.0
    result: Any = 0.0
    for each in coefficients[:0:-1]:
        before, result = result, 2 * t * result - before + each
    return t * result - before + coefficients[0]

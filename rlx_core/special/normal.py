"""The normal distribution's integral, its logarithm and inverse, the scaled error function, and the logit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx_core.functions.custom_jvp import custom_jvp
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import erfc, erfinv, exp, log, log1p, sqrt
from rlx_core.ops.arithmetic import minimum, negative
from rlx_core.ops.comparison import equal, greater, less, less_equal, logical_and
from rlx_core.ops.selection import where
from rlx_core.special.operands import in_wide

__all__ = ["erfcx", "log_ndtr", "logit", "ndtr", "ndtri"]

ROOT_2 = math.sqrt(2)
FRACTION_START = 5.0
"""The boundary from which the scaled error function is computed by its continued fraction."""
DEPTH = 40
"""The number of levels of the continued fraction: at 5 the remainder is below 1e-17."""


@checked_call
def logit(x: Any) -> Any:
    """ln(x / (1 - x)), the inverse of `expit`: infinite at 0 and 1, and NaN outside."""
    return in_wide("logit", _logit, x)


def _logit(x: Any) -> Any:
    # Near ½ the logarithms of both parts cancel.
    is_middle = logical_and(greater(x, 0.3), less(x, 0.65))
    middle, outer = where(is_middle, x, 0.5), where(is_middle, 0.25, x)
    return where(is_middle, log1p((2 * middle - 1) / (1 - middle)), log(outer) - log1p(negative(outer)))


@checked_call
def erfcx(x: Any) -> Any:
    """e^(x²) erfc(x), without underflow and with full precision where erfc is small.

    Source:
        The continued fraction: Digital Library of Mathematical Functions, 7.9.1.
    """
    return in_wide("erfcx", _erfcx, x)


@custom_jvp
def _erfcx(x: Any) -> Any:
    is_near = less(x, FRACTION_START)
    near, outer = where(is_near, x, 0.0), where(is_near, FRACTION_START, x)
    fraction: Any = outer
    for level in range(DEPTH, 0, -1):
        fraction = outer + (level / 2) / fraction
    # The rounding error δ of x² multiplies the result by e^δ ≈ 1 + δ. Below -2, the precision of x² limits the accuracy.
    return where(is_near, exp(near * near) * erfc(near), (1 / math.sqrt(math.pi)) / fraction)


_erfcx.defjvps(lambda t, y, x: t * (2 * x * y - 2 / math.sqrt(math.pi)))


@checked_call
def ndtr(x: Any) -> Any:
    """The integral of the normal distribution's density up to x: erfc(-x / √2) / 2."""
    return in_wide("ndtr", lambda x: 0.5 * erfc(x * (-1 / ROOT_2)), x)


@checked_call
def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, also for large negative numbers, where `ndtr` is 0."""
    return in_wide("log_ndtr", _log_ndtr, x)


@custom_jvp
def _log_ndtr(x: Any) -> Any:
    is_below = less(x, -1.0)
    below, above = where(is_below, x, -1.0), where(is_below, 0.0, x)
    tail = log(0.5 * _erfcx(below * (-1 / ROOT_2))) - 0.5 * below * below
    return where(is_below, tail, log1p(-0.5 * erfc(above * (1 / ROOT_2))))


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _log_ndtr(x), t * _slope(x)


def _slope(x: Any) -> Any:
    """Return the density at x divided by the integral up to x."""
    is_below = less(x, 0.0)
    below, above = where(is_below, x, 0.0), where(is_below, 0.0, x)
    density = math.sqrt(2 / math.pi) * exp(-0.5 * above * above)
    return where(
        is_below, math.sqrt(2 / math.pi) / _erfcx(below * (-1 / ROOT_2)), density / erfc(above * (-1 / ROOT_2))
    )


@checked_call
def ndtri(p: Any) -> Any:
    """The x with `ndtr(x) = p`: infinite at 0 and 1, and NaN outside.

    Source:
        The first approximation, accurate to 4.5e-4: Abramowitz & Stegun, 26.2.23; then Newton's steps for the logarithm.
    """
    return in_wide("ndtri", _ndtri, p)


@custom_jvp
def _ndtri(p: Any) -> Any:
    tail = minimum(p, 1 - p)
    is_middle = greater(tail, 0.2)
    middle = ROOT_2 * erfinv(where(is_middle, 2 * p - 1, 0.0))
    is_tail = logical_and(greater(tail, 0.0), less_equal(tail, 0.2))
    goal = log(where(is_tail, tail, 0.2))
    t = sqrt(-2 * goal)
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    x = above / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in range(3):
        x = x - (_log_ndtr(x) - goal) / _slope(x)
    outside = where(equal(tail, 0.0), where(equal(p, 0.0), -np.inf, np.inf), np.nan)
    return where(is_middle, middle, where(is_tail, where(less(p, 0.5), x, negative(x)), outside))


@_ndtri.defjvp
def _ndtri_jvp(primals: Any, tangents: Any) -> Any:
    (p,), (t,) = primals, tangents
    x = _ndtri(p)
    return x, t * math.sqrt(2 * math.pi) * exp(0.5 * x * x)

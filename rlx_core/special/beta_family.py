"""The beta function and its incomplete integral."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.functions.custom_jvp import custom_jvp
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import exp, log, log1p
from rlx_core.ops.arithmetic import negative
from rlx_core.ops.comparison import equal, greater, less, logical_and
from rlx_core.ops.creation import ones_like
from rlx_core.ops.gamma import digamma, lgamma
from rlx_core.ops.selection import where
from rlx_core.special.converging import Recurrence, limit, slope
from rlx_core.special.operands import in_wide, not_zero

__all__ = ["betainc", "betaln"]


@checked_call
def betaln(a: Any, b: Any) -> Any:
    """ln B(a, b) = ln Γ(a) + ln Γ(b) - ln Γ(a + b) of positive numbers."""
    return in_wide("betaln", _betaln, a, b)


def _betaln(a: Any, b: Any) -> Any:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@checked_call
def betainc(a: Any, b: Any, x: Any) -> Any:
    """I(x; a, b) = ∫₀ˣ t^(a-1) (1-t)^(b-1) dt / B(a, b), from 0 at 0 to 1 at 1.

    NaN where `a` or `b` is not positive, or x is outside of [0, 1].

    Has derivatives by all operands; higher ones by `a` and `b` only in forward mode, because the first is computed by a loop.

    Source:
        The continued fraction: Digital Library of Mathematical Functions, 8.17.22.
    """
    return in_wide("betainc", _incomplete, a, b, x)


def _is_inside(a: Any, b: Any, x: Any) -> Any:
    positive = logical_and(logical_and(greater(a, 0), greater(b, 0)), logical_and(less(a, np.inf), less(b, np.inf)))
    return logical_and(positive, logical_and(greater(x, 0), less(x, 1)))


@custom_jvp
def _incomplete(a: Any, b: Any, x: Any) -> Any:
    is_inside = _is_inside(a, b, x)
    inner = _by_loop(*(where(is_inside, v, other) for v, other in ((a, 1.0), (b, 1.0), (x, 0.5))))
    are_positive = logical_and(greater(a, 0), greater(b, 0))
    at_ends = where(equal(x, 0), 0.0, where(equal(x, 1), 1.0, np.nan))
    return where(is_inside, inner, where(are_positive, at_ends, np.nan))


def _fraction_start(p: Any, q: Any, z: Any) -> tuple[Any, Any, Any]:
    first = 1 / not_zero(1 - (p + q) * z / (p + 1))
    return ones_like(z), first, first


def _fraction_step(m: Any, state: Any, p: Any, q: Any, z: Any) -> tuple[tuple[Any, Any, Any], Any]:
    c, d, total = state
    even = m * (q - m) * z / ((p + 2 * m - 1) * (p + 2 * m))
    odd = -(p + m) * (p + q + m) * z / ((p + 2 * m) * (p + 2 * m + 1))
    d = 1 / not_zero(1 + even * d)
    c = not_zero(1 + even / c)
    first = c * d
    d = 1 / not_zero(1 + odd * d)
    c = not_zero(1 + odd / c)
    return (c, d, total * first * (c * d)), first * (c * d) - 1


FRACTION = Recurrence(_fraction_start, _fraction_step)
"""1 / (1 + d₁ / (1 + d₂ / (1 + …))), two levels per step, by Lentz's method."""


def _turned(a: Any, b: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Return where the integral from 0 is computed, which converges quickly up to the mean, and its operands, or those from 1."""
    is_near = less(x * (a + b + 2), a + 1)
    return is_near, where(is_near, a, b), where(is_near, b, a), where(is_near, x, 1 - x)


def _scale(p: Any, q: Any, z: Any) -> Any:
    """Return the factor of the continued fraction."""
    return exp(p * log(z) + q * log1p(negative(z)) - _betaln(p, q)) / p


def _by_loop(a: Any, b: Any, x: Any) -> Any:
    """Return the integral for operands inside of the domain."""
    is_near, p, q, z = _turned(a, b, x)
    tail = _scale(p, q, z) * limit(FRACTION, p, q, z)
    return where(is_near, tail, 1 - tail)


def _slopes(a: Any, b: Any, x: Any) -> tuple[Any, Any]:
    """Return the derivatives by a and b, inside of the domain."""
    is_near, p, q, z = _turned(a, b, x)
    scale, common = _scale(p, q, z), digamma(p + q)
    fraction, by_p = slope(FRACTION, 0, p, q, z)
    _, by_q = slope(FRACTION, 1, p, q, z)
    by_p = scale * (fraction * (log(z) - digamma(p) + common - 1 / p) + by_p)
    by_q = scale * (fraction * (log1p(negative(z)) - digamma(q) + common) + by_q)
    return where(is_near, by_p, -by_q), where(is_near, by_q, -by_p)


@_incomplete.defjvp
def _incomplete_jvp(primals: Any, tangents: Any) -> Any:
    (a, b, x), (t_a, t_b, t_x) = primals, tangents
    is_inside = _is_inside(a, b, x)
    a_, b_, x_ = (where(is_inside, v, other) for v, other in ((a, 1.0), (b, 1.0), (x, 0.5)))
    density = exp((a_ - 1) * log(x_) + (b_ - 1) * log1p(negative(x_)) - _betaln(a_, b_))
    by_a, by_b = _slopes(a_, b_, x_)
    return _incomplete(a, b, x), where(is_inside, by_a * t_a + by_b * t_b + density * t_x, 0.0)

"""The gamma function, its incomplete integrals and sums that go with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import ConfigError
from rlx_core.functions.custom_jvp import custom_jvp
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import exp, log
from rlx_core.ops.arguments import whole
from rlx_core.ops.arithmetic import remainder
from rlx_core.ops.array_elementwise import floor
from rlx_core.ops.comparison import (
    equal,
    greater,
    less,
    less_equal,
    logical_and,
    logical_or,
)
from rlx_core.ops.creation import full_like
from rlx_core.ops.floating import copysign
from rlx_core.ops.gamma import digamma, lgamma
from rlx_core.ops.gamma import polygamma as _polygamma
from rlx_core.ops.selection import where
from rlx_core.ops.special import BERNOULLI
from rlx_core.special.converging import Recurrence, limit, slope
from rlx_core.special.operands import in_wide, not_zero, smallest

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["factorial", "gamma", "gammainc", "gammaincc", "multigammaln", "polygamma", "zeta"]


@checked_call
def gamma(x: Any) -> Any:
    """Γ(x), by its logarithm and its sign: ±∞ at ±0, NaN at -1, -2, …

    Its relative error grows with ln Γ, up to about 100 roundings where it overflows.
    """
    return in_wide("gamma", _gamma, x)


def _gamma(x: Any) -> Any:
    is_odd = logical_and(less(x, 0), equal(remainder(floor(x), 2.0), 1.0))
    size = exp(lgamma(x))
    is_pole = logical_and(less(x, 0), equal(floor(x), x))
    finite = where(is_pole, np.nan, where(is_odd, -size, size))
    return where(equal(x, 0), copysign(np.inf, x), finite)


@checked_call
def factorial(n: Any) -> Any:
    """Γ(n + 1), and 0 below 0 as in SciPy."""
    return in_wide("factorial", lambda n: where(less(n, 0), 0.0, _gamma(where(less(n, 0), 0.0, n) + 1)), n)


@checked_call
def polygamma(n: int, x: ArrayLike) -> Array:
    """The derivative of order `n` of ψ, which is `digamma`."""
    order = whole("polygamma: n", n)
    if order < 0:
        raise ConfigError(f"polygamma: n must be at least 0, not {order}")
    return digamma(x) if order == 0 else _polygamma(x, order=order)


@checked_call
def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the gamma function of matrices of order `d`: d(d-1)/4 ln π + Σ ln Γ(a - i/2), i from 0 to d - 1."""
    order = whole("multigammaln: d", d)
    if order < 1:
        raise ConfigError(f"multigammaln: d must be at least 1, not {order}")
    constant = order * (order - 1) / 4 * math.log(math.pi)
    return in_wide("multigammaln", lambda a: constant + sum(lgamma(a - i / 2) for i in range(order)), a)


SUMMED = 10
"""The number of terms of the Hurwitz zeta function that are added before the remainder (an integral and its corrections)."""


@checked_call
def zeta(x: Any, q: Any = 1.0) -> Any:
    """Hurwitz' zeta function Σ (q + k)^-x over k from 0: infinite at x = 1 and at q = 0, -1, …

    NaN for x below 1 and for other q below 0.

    Source:
        Euler-Maclaurin summation: Digital Library of Mathematical Functions, 25.11.5.
    """
    return in_wide("zeta", _zeta, x, q)


def _zeta(x: Any, q: Any) -> Any:
    is_inside = logical_and(greater(x, 1), greater(q, 0))
    at_whole = logical_and(less_equal(q, 0), equal(floor(q), q))
    is_pole = where(equal(x, 1), greater(q, 0), logical_and(greater(x, 1), at_whole))
    x, start = where(is_inside, x, 2.0), where(is_inside, q, 1.0)
    total: Any = sum(exp(-x * log(start + k)) for k in range(SUMMED))
    end = start + SUMMED
    last = exp(-x * log(end))
    total = total + last * (end / (x - 1) + 0.5)
    rising: Any = x / end
    for k, bernoulli in enumerate(BERNOULLI, 1):
        total = total + last * (bernoulli / math.factorial(2 * k)) * rising
        rising = rising * ((x + (2 * k - 1)) * (x + 2 * k) / (end * end))
    return where(is_inside, total, where(is_pole, np.inf, np.nan))


@checked_call
def gammainc(a: Any, x: Any) -> Any:
    """P(a, x) = ∫₀ˣ t^(a-1) e^-t dt / Γ(a), from 0 at 0 to 1 at ∞; NaN where an operand is negative.

    Its relative error is about |a ln x - x - ln Γ(a)| roundings. Has derivatives by both operands; higher ones by `a` only in
    forward mode, because the first is computed by a loop.

    Source:
        The series and the continued fraction: Digital Library of Mathematical Functions, 8.11.4 and 8.9.2.
    """
    return in_wide("gammainc", lambda a, x: _incomplete(a, x)[0], a, x)


@checked_call
def gammaincc(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x), with full relative precision where it is small; see `gammainc`."""
    return in_wide("gammaincc", lambda a, x: _incomplete(a, x)[1], a, x)


@custom_jvp
def _incomplete(a: Any, x: Any) -> tuple[Any, Any]:
    """Return P and Q."""
    is_inside = _is_inside(a, x)
    a_, x_ = where(is_inside, a, 1.0), where(is_inside, x, 1.0)
    p, q = _by_loops(a_, x_)
    is_nothing = logical_or(logical_and(greater(a, 0), equal(x, 0)), logical_and(equal(a, np.inf), less(x, np.inf)))
    is_all = logical_or(logical_and(equal(a, 0), greater(x, 0)), logical_and(less(a, np.inf), equal(x, np.inf)))
    are_signed = logical_or(less(a, 0), less(x, 0))
    p, q = (
        where(is_inside, v, where(are_signed, np.nan, where(is_nothing, low, where(is_all, 1 - low, np.nan))))
        for v, low in ((p, 0.0), (q, 1.0))
    )
    return p, q


def _series_start(a: Any, x: Any) -> tuple[Any, Any]:
    return 1 / a, 1 / a


def _series_step(n: Any, state: Any, a: Any, x: Any) -> tuple[tuple[Any, Any], Any]:
    term, total = state
    term = term * x / (a + n)
    return (term, total + term), term / total


SERIES = Recurrence(_series_start, _series_step)
"""Σ xⁿ / (a (a + 1) … (a + n))."""


def _fraction_start(a: Any, x: Any) -> tuple[Any, Any, Any]:
    first = 1 / not_zero(x + 1 - a)
    return full_like(x, 1 / smallest(x)), first, first


def _fraction_step(n: Any, state: Any, a: Any, x: Any) -> tuple[tuple[Any, Any, Any], Any]:
    c, d, total = state
    above, below = n * (a - n), x + 1 - a + 2 * n
    d = 1 / not_zero(below + above * d)
    c = not_zero(below + above / c)
    return (c, d, total * (c * d)), c * d - 1


FRACTION = Recurrence(_fraction_start, _fraction_step)
"""1 / (x + 1 - a - 1(1 - a) / (x + 3 - a - 2(2 - a) / (x + 5 - a - …))), by Lentz's method."""


def _by_loops(a: Any, x: Any) -> tuple[Any, Any]:
    """Return P and Q of positive, finite operands: the smaller one is computed, and the other is 1 minus it."""
    is_series, near, outer = _split(a, x)
    scale = exp(a * log(x) - x - lgamma(a))
    p, q = scale * limit(SERIES, *near), scale * limit(FRACTION, *outer)
    return where(is_series, p, 1 - q), where(is_series, 1 - p, q)


def _split(a: Any, x: Any) -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """Return where the series is used, its operands, and those of the fraction; unused elements converge immediately."""
    is_series = less(x, a + 1)
    near = where(is_series, a, 1.0), where(is_series, x, 0.5)
    return is_series, near, (where(is_series, 1.0, a), where(is_series, 8.0, x))


def _slope_by_a(a: Any, x: Any) -> Any:
    """Return ∂P/∂a of positive, finite operands."""
    is_series, near, outer = _split(a, x)
    scale, turn = exp(a * log(x) - x - lgamma(a)), log(x) - digamma(a)
    (p, p_a), (q, q_a) = slope(SERIES, 0, *near), slope(FRACTION, 0, *outer)
    return scale * where(is_series, p * turn + p_a, -(q * turn + q_a))


@_incomplete.defjvp
def _incomplete_jvp(primals: Any, tangents: Any) -> Any:
    (a, x), (t_a, t_x) = primals, tangents
    is_inside = _is_inside(a, x)
    a_, x_ = where(is_inside, a, 1.0), where(is_inside, x, 1.0)
    density = exp((a_ - 1) * log(x_) - x_ - lgamma(a_))
    tangent = where(is_inside, _slope_by_a(a_, x_) * t_a + density * t_x, 0.0)
    return _incomplete(a, x), (tangent, -tangent)


def _is_inside(a: Any, x: Any) -> Any:
    """Return where neither operand is at an end of its domain."""
    return logical_and(logical_and(greater(a, 0), greater(x, 0)), logical_and(less(a, np.inf), less(x, np.inf)))

"""Powers, and trigonometric and hyperbolic functions with their inverses, of complex numbers by parts.

The inverse ones are those of Hull, Fairgrieve and Tang 1997, "Implementing the complex arcsine and arccosine functions using
exception handling", without its exceptions: where an intermediate would overflow, the function's asymptote is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from rlx_core.codegen import complex_parts
from rlx_core.codegen.complex_parts import (
    Parts,
    exponential,
    logarithm,
    modulus,
    ordered,
    product,
    quotient,
    square_root,
    times,
)
from rlx_core.ops import activation, arithmetic, trigonometry
from rlx_core.ops.activation import exp, exp2, expm1, log, log1p, sqrt
from rlx_core.ops.arithmetic import absolute, atan2
from rlx_core.ops.comparison import isfinite, isinf, isnan
from rlx_core.ops.floating import copysign
from rlx_core.ops.selection import where
from rlx_core.ops.trigonometry import cos, cosh, sin, sinh

_LARGE_ARGUMENT: Final = 1e9
"""From this modulus on, adding 1 to a square changes nothing, in every dtype."""

_STEEP: Final = 20.0
"""For real parts beyond it, the hyperbolic tangent's real part is ±1."""


def scaled(z: Parts, factor: float) -> Parts:
    return z[0] * factor, z[1] * factor


def turned(z: Parts) -> Parts:
    """i·z"""
    return -z[1], z[0]


def turned_back(z: Parts) -> Parts:
    """-i·z"""
    return z[1], -z[0]


# --------------------------------------------------------------------------- exponentials and powers


def logarithm_of_one_more(z: Parts) -> Parts:
    """Return log(1 + z); near 0 it is computed from |1 + z|² - 1."""
    is_near = ordered(z)[0] < 0.5
    re, im = (where(is_near, part, 0) for part in z)
    near = 0.5 * log1p(re * (2 + re) + im * im)
    away, angle = logarithm((z[0] + 1, z[1]))
    return where(is_near, near, away), angle


def exponential_less_one(z: Parts) -> Parts:
    half = sin(0.5 * z[1])
    re, im = exponential(z)
    near = times(expm1(z[0]), cos(z[1])) - 2 * half * half
    # Below 1 the difference cancels; beyond, and of e^-∞ = 0 whatever the angle is, it does not.
    return where((z[0] > 80) | (z[0] == -math.inf), re - 1, near), im


def power_of_two(z: Parts) -> Parts:
    return exponential(z, exp2, math.log(2))


def power(a: Parts, b: Parts) -> Parts:
    """e^(b ln a); 1 where b is 0, and 0 where a is and b is positive, NaN where it is not."""
    base_is_zero = (a[0] == 0) & (a[1] == 0)
    is_one = (b[0] == 0) & (b[1] == 0)
    re, im = exponential(product(b, logarithm((where(base_is_zero, 1, a[0]), a[1]))))
    is_zero = base_is_zero & (b[0] > 0) & (b[1] == 0)
    re, im = (where(is_zero, 0, where(base_is_zero, float("nan"), part)) for part in (re, im))
    return where(is_one, 1, re), where(is_one, 0, im)


# ----------------------------------------------------------------------- tangents, and the inverse functions


def hyperbolic_tangent(z: Parts) -> Parts:
    """(sinh x cosh x + i sin y cos y) / (sinh² x + cos² y); ±1 + 0i where x is infinite, whatever y is.

    Source:
        C17, Annex G.6.2.6.
    """
    x, y = z
    is_infinite = isinf(x)
    is_steep = absolute(x) > _STEEP
    near = where(is_steep, 0, x)
    s, c = sinh(near), cos(y)
    below = s * s + c * c
    both = sin(y) * c
    re = where(is_steep, copysign(1.0, x), s * cosh(near) / below)
    re = where(isfinite(y) | is_infinite, re, where(x == 0, x, math.nan))
    # Of an infinite x the imaginary part is a zero with the sign of sin 2y, where y has one.
    decay = exp(-2 * absolute(x))
    im = where(is_steep, times(decay, 4 * both), both / below)
    im = where((y == 0) & isnan(x), y, im)  # tanh(NaN ± 0i) = NaN ± 0i
    im = where(isfinite(y), im, math.nan)
    return re, where(is_infinite & ~isfinite(y), 0, im)


def sides(z: Parts) -> tuple[Any, Any, Any]:
    """Return common terms of the arc sine and the arc cosine of z with non-negative parts: a denominator, the imaginary part,
    and whether z is far. The tangent of the arc sine's real part is x over the denominator; that of the arc cosine is the
    denominator over x."""
    x, y = (absolute(part) for part in z)
    is_far = ordered(z)[0] > _LARGE_ARGUMENT
    # By halves: the modulus itself may be too large for its type, its logarithm is not.
    half = where(isinf(x) | isinf(y), float("inf"), modulus((0.5 * x, 0.5 * y)))
    x, y = (where(is_far, 1, part) for part in (x, y))
    r, s = modulus((x + 1, y)), modulus((x - 1, y))
    a = 0.5 * (r + s)
    is_inside = x <= 1
    beyond = r + x + 1
    short = s + absolute(x - 1)  # s + (1 - x) inside, s + (x - 1) outside
    is_one = short == 0
    safe = where(is_one, 1, short)
    by_y = where(is_one, 1, y / safe)
    root = sqrt(0.5 * (a + x))
    inside = root * sqrt(y * (y / beyond) + short)
    outside = y * root * sqrt(1 / beyond + 1 / safe)
    # a - 1 as a product with y inside, so that no square of y vanishes.
    q = y / beyond + by_y
    near_inside = sqrt(0.5 * y) * sqrt(q * (a + 1))
    less_inside = 0.5 * y * q
    less_outside = 0.5 * (y * (y / beyond) + short)
    less = where(is_inside, less_inside, less_outside)
    root_of_both = where(is_inside, near_inside, sqrt(less_outside * (a + 1)))
    im = where(a < 1.5, log1p(less + root_of_both), log(a + sqrt((a - 1) * (a + 1))))
    return where(is_inside, inside, outside), where(is_far, log(half) + math.log(4), im), is_far


def arc_sine(z: Parts) -> Parts:
    adjacent, im, is_far = sides(z)
    re = atan2(absolute(z[0]), where(is_far, absolute(z[1]), adjacent))
    # Of an imaginary number the arc sine is one too, of NaN·i as well.
    return where(z[0] == 0, z[0], copysign(re, z[0])), copysign(im, z[1])


def arc_cosine(z: Parts) -> Parts:
    opposite, im, is_far = sides(z)
    re = atan2(where(is_far, absolute(z[1]), opposite), z[0])
    return where(z[0] == 0, math.pi / 2, re), -copysign(im, z[1])


def hyperbolic_arc_cosine(z: Parts) -> Parts:
    re, im = arc_cosine(z)
    return absolute(im), copysign(re, z[1])


def hyperbolic_arc_tangent(z: Parts) -> Parts:
    """½ ln((1 + z) / (1 - z)), by logarithms of both where z is near ±1."""
    x, y = absolute(z[0]), z[1]
    is_far = (ordered(z)[0] > _LARGE_ARGUMENT) | isinf(x) | isinf(y)
    # ±iπ/2 + 1/z, by halves, whose modulus is finite.
    half = where(is_far, modulus((0.5 * x, 0.5 * y)), 1)
    far_re, far_im = (where(isinf(x) | isinf(y), 0, 0.5 * (0.5 * part / half / half)) for part in (x, y))
    x, y = where(is_far, 0, x), where(is_far, 0, y)
    r, s = modulus((x + 1, y)), modulus((x - 1, y))
    is_near_one = s < 0.5
    wide = where(is_near_one, 1, s)
    re = where(is_near_one, 0.5 * (log(r) - log(s)), 0.25 * log1p(4 * (x / wide) / wide))
    im = 0.5 * atan2(2 * y, (1 - x) * (1 + x) - y * y)
    # Of an imaginary number it is imaginary, of NaN·i as well.
    re = where(z[0] == 0, z[0], copysign(where(is_far, far_re, re), z[0]))
    far_im = copysign(math.pi / 2, z[1]) - far_im
    return re, where(is_far & ~isnan(z[1]), far_im, where(isnan(z[1]), z[1], im))


FORMULAS: Final[dict[Any, Callable[..., Parts]]] = {
    **complex_parts.FORMULAS,
    arithmetic.pow: power,
    activation.exp2: power_of_two,
    activation.expm1: exponential_less_one,
    activation.log1p: logarithm_of_one_more,
    activation.log2: lambda z: scaled(logarithm(z), 1 / math.log(2)),
    activation.log10: lambda z: scaled(logarithm(z), 1 / math.log(10)),
    activation.rsqrt: lambda z: quotient((1 + 0 * z[0], 0 * z[0]), square_root(z)),
    activation.tanh: hyperbolic_tangent,
    trigonometry.tan: lambda z: turned_back(hyperbolic_tangent(turned(z))),
    trigonometry.asin: arc_sine,
    trigonometry.acos: arc_cosine,
    trigonometry.atan: lambda z: turned_back(hyperbolic_arc_tangent(turned(z))),
    trigonometry.asinh: lambda z: turned_back(arc_sine(turned(z))),
    trigonometry.acosh: hyperbolic_arc_cosine,
    trigonometry.atanh: hyperbolic_arc_tangent,
}
"""Functions of complex numbers → the parts of their results."""

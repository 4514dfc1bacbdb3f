"""The inverses of the circular and hyperbolic functions, atan2 and hypot, in f64 and in f32.

f32 takes those of f64 where a target has it: one rounding, and quicker than pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import ASIN, ATAN
from rlx_core.codegen.scalars.exponential import log1p
from rlx_core.codegen.scalars.floats import Pair, either, exact_product, exact_quotient, exact_sum, polynomial, residue
from rlx_core.codegen.scalars.table import Function
from rlx_core.codegen.scalars.wide_exponential import log1p_of
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import arithmetic, trigonometry
from rlx_core.system.records import frozen


@frozen
class InverseFormat:
    """Parameters that depend on the precision and the exponent range of a float.

    Attributes:
        pi: π in two pieces, each rounded.
        huge, tiny: Beyond these powers of two squares and quotients are not what they should be.
        down, up: The powers of two that bring such numbers back.
        least: A number that changes no divisor but 0.
    """

    pi: tuple[float, float]
    huge: int
    tiny: int
    down: int
    up: int
    least: float


_FORMATS: Mapping[DType, InverseFormat] = {
    f64: InverseFormat((math.pi, 1.2246467991473532e-16), 500, -400, -600, 600, 1e-300),
    f32: InverseFormat((3.1415927410125732, -8.742277657347586e-08), 60, -50, -70, 90, 1e-37),
}


def format_of(b: Assembler[V], x: V) -> InverseFormat:
    return _FORMATS[b.dtype_of(x)]


def logarithm(b: Assembler[V], x: Pair[V]) -> V:
    """ln(1 + x) of a pair."""
    if b.dtype_of(x[0]) is f64:
        return log1p_of(b, x)
    one = b.constant(x[0], 1.0)
    # For a huge x the second part is irrelevant, and its quotient would be NaN for an infinite one.
    more = b.select(b.fcmp_ordered("==", x[1], b.constant(one, 0.0)), x[1], b.fdiv(x[1], b.fadd(x[0], one)))
    return b.fadd(log1p(b, x[0]), more)


def arc_of(b: Assembler[V], t: V) -> V:
    """atan t - t for |t| <= sqrt 2 - 1."""
    z = b.fmul(t, t)
    return b.fmul(b.fmul(z, t), polynomial(b, z, ATAN))


def angle(b: Assembler[V], y: V, x: V) -> Pair[V]:
    """atan(y/x) of 0 <= y <= x as a pair: the arc from a multiple of π/4, whose tangent is small."""
    is_wide = b.fcmp_ordered(">", y, b.fmul(x, b.constant(x, math.sqrt(2) - 1)))
    over = b.select(is_wide, b.fsub(y, x), y)
    under = b.select(is_wide, b.fadd(y, x), x)
    t = b.fdiv(over, under)
    zero = b.constant(x, 0.0)
    base, base_lost = (b.select(is_wide, b.constant(x, v / 4), zero) for v in format_of(b, x).pi)
    top, lost = exact_sum(b, base, t)
    return top, b.fadd(lost, b.fadd(arc_of(b, t), base_lost))


def less_from(b: Assembler[V], factor: float, x: Pair[V]) -> Pair[V]:
    """factor·π - x."""
    pi, pi_low = (b.constant(x[0], factor * piece) for piece in format_of(b, x[0]).pi)
    top, lost = exact_sum(b, pi, b.fneg(x[0]))
    return top, b.fadd(lost, b.fsub(pi_low, x[1]))


def atan(b: Assembler[V], x: V) -> V:
    size, one = b.fabs(x), b.constant(x, 1.0)
    is_large = b.fcmp_ordered(">", size, one)
    # Of an infinite x only that it is one matters.
    inverse = b.fdiv(one, b.select(is_large, size, one))
    arc = angle(b, b.select(is_large, inverse, size), one)
    high, low = either(b, is_large, less_from(b, 0.5, arc), arc)
    return b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, b.copysign(b.fadd(high, low), x))


def scales(b: Assembler[V], size: V) -> tuple[V, V]:
    """A power of two that brings a huge or tiny size near 1, and what brings it back."""
    form, one = format_of(b, size), b.constant(size, 1.0)
    is_huge = b.fcmp_ordered(">", size, b.constant(size, 2.0**form.huge))
    is_tiny = b.fcmp_ordered("<", size, b.constant(size, 2.0**form.tiny))

    def chosen(huge: int, tiny: int) -> V:
        inside = b.select(is_tiny, b.constant(size, 2.0**tiny), one)
        return b.select(is_huge, b.constant(size, 2.0**huge), inside)

    return chosen(form.down, form.up), chosen(-form.down, -form.up)


def atan2(b: Assembler[V], y: V, x: V) -> V:
    zero, one = b.constant(x, 0.0), b.constant(x, 1.0)
    x_size, y_size = b.fabs(x), b.fabs(y)
    is_steep = b.fcmp_ordered(">", y_size, x_size)
    smaller, larger = b.select(is_steep, x_size, y_size), b.select(is_steep, y_size, x_size)
    # Two infinities are at 45°, the origin is at 0; sums of huge numbers must not overflow, nor tiny ones lose digits.
    is_infinite = b.fcmp_ordered("==", larger, b.constant(x, math.inf))
    both = b.fcmp_ordered("==", smaller, b.constant(x, math.inf))
    scale, _ = scales(b, larger)
    smaller, larger = b.fmul(smaller, scale), b.fmul(larger, scale)
    larger = b.select(is_infinite, one, larger)
    smaller = b.select(is_infinite, b.select(both, one, zero), smaller)
    larger = b.select(b.fcmp_ordered("==", larger, zero), one, larger)
    arc = angle(b, smaller, larger)
    arc = either(b, is_steep, less_from(b, 0.5, arc), arc)
    is_left = b.icmp_signed("<", b.bits(x), b.constant(b.bits(x), 0))
    high, low = either(b, is_left, less_from(b, 1.0, arc), arc)
    result = b.copysign(b.fadd(high, low), y)
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), result)


def root_pair(b: Assembler[V], z: V) -> Pair[V]:
    """√z as a pair; of 0 it is 0."""
    s = b.sqrt(z)
    left = residue(b, s, s, z)
    lost = b.fdiv(left, b.fadd(s, s))
    return s, b.select(b.fcmp_ordered(">", s, b.constant(z, 0.0)), lost, b.constant(z, 0.0))


def arc_sine_parts(b: Assembler[V], x: V) -> tuple[V, Pair[V], Pair[V]]:
    """(|x| <= ½, asin |x| there, 2·asin √((1 - |x|)/2)) as pairs; NaN beyond 1."""
    size = b.fabs(x)
    is_near = b.fcmp_ordered("<=", size, b.constant(x, 0.5))
    z = b.select(is_near, b.fmul(x, x), b.fmul(b.fsub(b.constant(x, 1.0), size), b.constant(x, 0.5)))
    s, lost = root_pair(b, z)
    p = polynomial(b, z, ASIN)
    near = (size, b.fmul(b.fmul(z, size), p))
    remainder = b.fma(b.fmul(z, s), p, lost)
    return is_near, near, (b.fadd(s, s), b.fadd(remainder, remainder))


def asin(b: Assembler[V], x: V) -> V:
    is_near, near, upper = arc_sine_parts(b, x)
    high, low = either(b, is_near, near, less_from(b, 0.5, upper))
    return b.copysign(b.fadd(high, low), x)


def acos(b: Assembler[V], x: V) -> V:
    is_near, near, upper = arc_sine_parts(b, x)
    is_left = b.fcmp_ordered("<", x, b.constant(x, 0.0))
    signed = either(b, is_left, (b.fneg(near[0]), b.fneg(near[1])), near)
    outer = either(b, is_left, less_from(b, 1.0, upper), upper)
    high, low = either(b, is_near, less_from(b, 0.5, signed), outer)
    return b.fadd(high, low)


def asinh(b: Assembler[V], x: V) -> V:
    size, one = b.fabs(x), b.constant(x, 1.0)
    # asinh x = ln(1 + x + x²/(1 + √(1 + x²))); a large x is divided first, so that its square is finite.
    is_large = b.fcmp_ordered(">", size, b.constant(x, 2.0**28))
    a = b.select(is_large, one, size)
    square = b.fmul(a, a)
    share = b.fdiv(square, b.fadd(one, b.sqrt(b.fadd(square, one))))
    near = exact_sum(b, a, share)
    # ln(1 + (x - 1)) + ln 2 for a large one.
    outer = logarithm(
        b, (b.select(is_large, b.fsub(size, one), near[0]), b.select(is_large, b.constant(x, 0.0), near[1]))
    )
    result = b.select(is_large, b.fadd(outer, b.constant(x, math.log(2))), outer)
    return b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, b.copysign(result, x))


def acosh(b: Assembler[V], x: V) -> V:
    one = b.constant(x, 1.0)
    is_large = b.fcmp_ordered(">", x, b.constant(x, 2.0**28))
    a = b.select(is_large, one, x)
    t = b.fsub(a, one)
    square, lost = exact_product(b, t, t)
    w, more = exact_sum(b, b.fadd(t, t), square)
    s, s_lost = root_pair(b, w)
    more = b.fdiv(b.fadd(more, lost), b.fadd(b.fadd(s, s), b.constant(x, format_of(b, x).least)))
    high, low = exact_sum(b, t, s)
    low = b.fadd(low, b.fadd(s_lost, more))
    outer = logarithm(b, (b.select(is_large, b.fsub(x, one), high), b.select(is_large, b.constant(x, 0.0), low)))
    result = b.select(is_large, b.fadd(outer, b.constant(x, math.log(2))), outer)
    return b.select(b.fcmp_unordered("<", x, one), b.constant(x, math.nan), result)


def atanh(b: Assembler[V], x: V) -> V:
    size, one, half = b.fabs(x), b.constant(x, 1.0), b.constant(x, 0.5)
    divisor = exact_sum(b, one, b.fneg(size))
    quotient, lost = exact_quotient(b, b.fadd(size, size), divisor)
    is_one = b.fcmp_ordered("==", size, one)
    lost = b.select(is_one, b.constant(x, 0.0), lost)
    value = b.fmul(half, logarithm(b, (quotient, lost)))
    value = b.select(is_one, b.constant(x, math.inf), value)
    tiny = b.fcmp_ordered("<", size, b.constant(x, 2.0**-28))
    result = b.select(tiny, b.fma(b.fmul(b.fmul(x, x), b.constant(x, 1 / 3)), size, size), value)
    return b.copysign(result, x)


def hypot(b: Assembler[V], x: V, y: V) -> V:
    x_size, y_size, infinity = b.fabs(x), b.fabs(y), b.constant(x, math.inf)
    is_first = b.fcmp_ordered(">", x_size, y_size)
    larger, smaller = b.select(is_first, x_size, y_size), b.select(is_first, y_size, x_size)
    scale, back = scales(b, larger)
    larger, smaller = b.fmul(larger, scale), b.fmul(smaller, scale)
    square, lost = exact_product(b, larger, larger)
    other, other_lost = exact_product(b, smaller, smaller)
    total, more = exact_sum(b, square, other)
    s, s_lost = root_pair(b, total)
    correction = b.fdiv(
        b.fadd(more, b.fadd(lost, other_lost)), b.fadd(b.fadd(s, s), b.constant(x, format_of(b, x).least))
    )
    value = b.fmul(b.fadd(s, b.fadd(s_lost, correction)), back)
    value = b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), value)
    is_infinite = b.or_(b.fcmp_ordered("==", x_size, infinity), b.fcmp_ordered("==", y_size, infinity))
    return b.select(is_infinite, infinity, value)


_BOTH: Mapping[type[Op], Function] = {
    trigonometry.asin.op: asin,
    trigonometry.acos.op: acos,
    trigonometry.atan.op: atan,
    trigonometry.asinh.op: asinh,
    trigonometry.acosh.op: acosh,
    trigonometry.atanh.op: atanh,
    arithmetic.atan2.op: atan2,
    arithmetic.hypot.op: hypot,
}

DOUBLE: Mapping[tuple[type[Op], DType], Function] = {(op, f64): make for op, make in _BOTH.items()}
SINGLE: Mapping[tuple[type[Op], DType], Function] = {(op, f32): make for op, make in _BOTH.items()}
"""The same in registers of f32."""

"""Exponentials, logarithms, roots and hyperbolic functions in f64 as vector code; f32 uses those for which it has no code."""

from __future__ import annotations

import math

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import CBRT, EXP, LOG, SINH, TANH
from rlx_core.codegen.scalars.exponential import with_edges
from rlx_core.codegen.scalars.floats import (
    Pair,
    clamped,
    exact_product,
    exact_sum,
    polynomial,
    power_of_two,
    rounded,
)
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, trigonometry

# ln 2 in two pieces: the first has 32 bits, so that its product with an exponent is exact. Likewise log₁₀ 2.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG10_2_HIGH, LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13
LOG2_E, LOG2_E_LOW = 1.4426950408889634, 2.0355273740931033e-17
LOG10_E, LOG10_E_LOW = 0.4342944819032518, 1.098319650216765e-17


# ------------------------------------------------------------------------------------ exponentials


def reduced(b: Assembler[V], x: V) -> tuple[V, V, V]:
    """(r, n as a float, n) with x = r + n·ln 2."""
    integral, n = rounded(b, x, LOG2_E)
    r = b.fma(b.fneg(integral), b.constant(x, LN2_HIGH), x)
    return b.fma(b.fneg(integral), b.constant(x, LN2_LOW), r), integral, n


def tail_of(b: Assembler[V], r: V) -> V:
    """e^r - 1 for |r| <= ln2/2."""
    return b.fma(polynomial(b, r, EXP), b.fmul(r, r), r)


def exponential(b: Assembler[V], x: V, halvings: int = 0) -> V:
    """e^x / 2^halvings; 0 far below and infinity far above."""
    r, integral, n = reduced(b, clamped(b, x, -750.0, 711.0))
    n = b.sub(n, b.constant(n, halvings)) if halvings else n
    return b.scaled(b.fadd(tail_of(b, r), b.constant(x, 1.0)), integral, n)


def exponential_of(b: Assembler[V], x: Pair[V]) -> V:
    """e^(x + x_lost) with hardly more than the last rounding, for -750 <= x <= 711."""
    high, lost = x
    integral, n = rounded(b, high, LOG2_E)
    first = b.fma(b.fneg(integral), b.constant(high, LN2_HIGH), high)
    r = b.fma(b.fneg(integral), b.constant(high, LN2_LOW), first)
    r_lost = b.fadd(b.fma(b.fneg(integral), b.constant(high, LN2_LOW), b.fsub(first, r)), lost)
    correction = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    correction = b.fadd(correction, b.fma(r_lost, b.fadd(r, correction), r_lost))
    top, top_lost = exact_sum(b, b.constant(high, 1.0), r)
    return b.scaled(b.fadd(top, b.fadd(top_lost, correction)), integral, n)


def exp2(b: Assembler[V], x: V) -> V:
    x = clamped(b, x, -1080.0, 1025.0)
    integral, n = rounded(b, x)
    part = b.fsub(x, integral)
    r, lost = exact_product(b, part, b.constant(x, math.log(2)))
    lost = b.fma(part, b.constant(x, 2.3190468138462996e-17), lost)
    tail = b.fadd(tail_of(b, r), lost)
    return b.scaled(b.fadd(tail, b.constant(x, 1.0)), integral, n)


def expm1(b: Assembler[V], x: V) -> V:
    r, _, n = reduced(b, clamped(b, x, -40.0, 710.0))
    # Half the power, so that 2^1024 does not appear where the result is still finite.
    scale = power_of_two(b, b.sub(n, b.constant(n, 1)), x)
    result = b.fma(tail_of(b, r), scale, b.fsub(scale, b.constant(x, 0.5)))
    result = b.fadd(result, result)
    return b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, result)


# -------------------------------------------------------------------------------------- logarithms


def split(b: Assembler[V], x: V) -> tuple[V, V]:
    """(m - 1, e as a float) with x = m·2^e and m within a factor of sqrt 2 of 1."""
    is_tiny = b.fcmp_ordered("<", x, b.constant(x, 2.0**-1022))
    pattern = b.bits(b.select(is_tiny, b.fmul(x, b.constant(x, 2.0**52)), x))
    # The exponent of x·sqrt 2, by a logical shift of a number that is not negative.
    moved = b.add(b.sub(pattern, b.constant(pattern, 0x3FE6A09E667F3BCD)), b.constant(pattern, 1023 << 52))
    biased = b.lshr(moved, b.constant(pattern, 52))
    shift = b.sub(biased, b.constant(pattern, 1023))
    m = b.from_bits(b.sub(pattern, b.shl(shift, b.constant(pattern, 52))), x)
    # As a float: the bits of 2^52 + biased, less that.
    magic = b.from_bits(b.or_(biased, b.constant(pattern, 0x4330000000000000)), x)
    e = b.fsub(magic, b.constant(x, 2.0**52 + 1023))
    return b.fsub(m, b.constant(x, 1.0)), b.select(is_tiny, b.fsub(e, b.constant(x, 52.0)), e)


def log_of_mantissa(b: Assembler[V], f: V) -> Pair[V]:
    """Return ln(1 + f) as f - f²/2 and the remainder."""
    s = b.fdiv(f, b.fadd(f, b.constant(f, 2.0)))
    z = b.fmul(s, s)
    half = b.fmul(b.fmul(f, b.constant(f, 0.5)), f)
    correction = b.fmul(s, b.fma(z, polynomial(b, z, LOG), half))
    high = b.fsub(f, half)
    half_lost = b.fsub(half, b.fma(b.fmul(f, b.constant(f, 0.5)), f, b.constant(f, 0.0)))
    return high, b.fadd(b.fsub(b.fsub(b.fsub(f, high), half), half_lost), correction)


def finite_log(b: Assembler[V], x: V) -> V:
    """ln x for a finite x > 0."""
    f, e = split(b, x)
    high, low = log_of_mantissa(b, f)
    top, lost = exact_sum(b, b.fmul(e, b.constant(x, LN2_HIGH)), high)
    return b.fadd(top, b.fadd(lost, b.fma(e, b.constant(x, LN2_LOW), low)))


def log(b: Assembler[V], x: V) -> V:
    return with_edges(b, x, finite_log(b, x))


def other_base(b: Assembler[V], x: V, factor: tuple[float, float], of_two: tuple[float, float]) -> V:
    """A logarithm to another base: the natural one of the mantissa times `factor`, and the exponent times `of_two`."""
    f, e = split(b, x)
    high, low = log_of_mantissa(b, f)
    p, p_lost = exact_product(b, high, b.constant(x, factor[0]))
    p_lost = b.fadd(p_lost, b.fma(low, b.constant(x, factor[0]), b.fmul(high, b.constant(x, factor[1]))))
    top, lost = exact_sum(b, b.fmul(e, b.constant(x, of_two[0])), p)
    return with_edges(b, x, b.fadd(top, b.fadd(lost, b.fma(e, b.constant(x, of_two[1]), p_lost))))


def log2(b: Assembler[V], x: V) -> V:
    return other_base(b, x, (LOG2_E, LOG2_E_LOW), (1.0, 0.0))


def log10(b: Assembler[V], x: V) -> V:
    return other_base(b, x, (LOG10_E, LOG10_E_LOW), (LOG10_2_HIGH, LOG10_2_LOW))


def log1p_of(b: Assembler[V], x: Pair[V]) -> V:
    """ln(1 + x + x_lost)."""
    high, lost = x
    u, u_lost = exact_sum(b, b.constant(high, 1.0), high)
    f, e = split(b, u)
    top, low = log_of_mantissa(b, f)
    low = b.fadd(low, b.fdiv(b.fadd(u_lost, lost), u))
    total, remainder = exact_sum(b, b.fmul(e, b.constant(high, LN2_HIGH)), top)
    inside = with_edges(b, u, b.fadd(total, b.fadd(remainder, b.fma(e, b.constant(high, LN2_LOW), low))))
    is_tiny = b.fcmp_ordered("<", b.fabs(high), b.constant(high, 2.0**-54))
    return b.select(is_tiny, b.fadd(high, lost), inside)


def log1p(b: Assembler[V], x: V) -> V:
    # Of -0 the sum with a lost +0 would lose the sign.
    return b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, log1p_of(b, (x, b.constant(x, 0.0))))


def logaddexp(b: Assembler[V], x: V, y: V) -> V:
    is_first = b.fcmp_ordered(">", x, y)
    larger = b.select(is_first, x, y)
    # Equal infinities have no difference.
    distance = b.select(b.fcmp_ordered("==", x, y), b.constant(x, 0.0), b.fneg(b.fabs(b.fsub(x, y))))
    total = b.fadd(larger, log1p_of(b, (exponential(b, distance), b.constant(x, 0.0))))
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), total)


# ------------------------------------------------------------------------------------------- roots


def cbrt(b: Assembler[V], x: V) -> V:
    size = b.fabs(x)
    f, e = split(b, size)
    third = b.floor(b.fmul(b.fadd(e, b.constant(x, -0.5)), b.constant(x, 1 / 3)))
    # m·2^(e - 3·third) lies in sqrt(1/2)·2 .. sqrt 2·8, of which an eighth or the whole is in 1 .. 8.
    over = b.fsub(e, b.fmul(b.constant(x, 3.0), third))
    _, power = rounded(b, over)
    m = b.fmul(b.fadd(f, b.constant(x, 1.0)), power_of_two(b, power, x))
    y = polynomial(b, m, CBRT)
    for _ in range(2):
        # Halley: the error is cubed.
        cube = b.fmul(b.fmul(y, y), y)
        y = b.fmul(y, b.fdiv(b.fadd(cube, b.fadd(m, m)), b.fadd(b.fadd(cube, cube), m)))
    square, lost = exact_product(b, y, y)
    left = b.fma(lost, y, b.fma(square, y, b.fneg(m)))
    y = b.fsub(y, b.fdiv(left, b.fmul(square, b.constant(x, 3.0))))
    _, n = rounded(b, third)
    result = b.copysign(b.fmul(y, power_of_two(b, n, x)), x)
    is_edge = b.or_(
        b.fcmp_unordered("==", x, b.constant(x, 0.0)), b.fcmp_unordered("==", size, b.constant(x, math.inf))
    )
    return b.select(is_edge, x, result)


# -------------------------------------------------------------------------------------- hyperbolic


def sinh(b: Assembler[V], x: V) -> V:
    size, square = b.fabs(x), b.fmul(x, x)
    near = b.fma(b.fmul(square, x), polynomial(b, square, SINH), x)
    half = exponential(b, size, 1)
    outer = b.copysign(b.fsub(half, b.fdiv(b.constant(x, 0.25), half)), x)
    return b.select(b.fcmp_ordered("<", size, b.constant(x, 1.0)), near, outer)


def cosh(b: Assembler[V], x: V) -> V:
    half = exponential(b, b.fabs(x), 1)
    return b.fadd(half, b.fdiv(b.constant(x, 0.25), half))


def tanh(b: Assembler[V], x: V) -> V:
    size, square, one = b.fabs(x), b.fmul(x, x), b.constant(x, 1.0)
    near = b.fma(b.fmul(square, x), polynomial(b, square, TANH), x)
    power = exponential(b, clamped(b, b.fadd(size, size), None, 44.0))
    outer = b.fsub(one, b.fdiv(b.constant(x, 2.0), b.fadd(power, one)))
    return b.copysign(b.select(b.fcmp_ordered("<", size, b.constant(x, 0.625)), near, outer), x)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.exp.op, f64): exponential,
    (activation.exp2.op, f64): exp2,
    (activation.expm1.op, f64): expm1,
    (activation.log.op, f64): log,
    (activation.log2.op, f64): log2,
    (activation.log10.op, f64): log10,
    (activation.log1p.op, f64): log1p,
    (arithmetic.logaddexp.op, f64): logaddexp,
    (activation.cbrt.op, f64): cbrt,
    (trigonometry.sinh.op, f64): sinh,
    (trigonometry.cosh.op, f64): cosh,
    (activation.tanh.op, f64): tanh,
}

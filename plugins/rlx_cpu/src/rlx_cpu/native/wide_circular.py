"""Circular functions, their inverses and the inverse hyperbolic ones in f64 as vector code; f32 takes the inverses too."""

from __future__ import annotations

import math

from rlx_core.ir.dtypes import f64
from rlx_core.ops import arithmetic, trigonometry
from rlx_cpu.native import ir
from rlx_cpu.native.build import constant, intrinsic
from rlx_cpu.native.coefficients import ASIN, ATAN, COS, SIN
from rlx_cpu.native.floats import (
    Pair,
    absolute,
    bits,
    exact_product,
    exact_quotient,
    exact_sum,
    fma,
    polynomial,
    rounded,
    where_any,
    with_sign,
)
from rlx_cpu.native.functions import library, vector
from rlx_cpu.native.wide_exponential import log1p_of, number

__all__: list[str] = []

# π/2 in pieces: 33 bits each, so that products with numbers below 2^20 are exact, and what is left.
HALF_PI = (
    1.57079632673412561417e00,
    6.07710050630396597660e-11,
    2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)
FAR = 1.0e6
"""Beyond this, multiples of π/2 need more digits than there are pieces; the C library has them, a lane at a time."""

PI, PI_LOW = math.pi, 1.2246467991473532e-16


def turned(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(r, what r lost, n) with x = r + n·π/2 and |r| <= π/4, for |x| <= FAR."""
    whole, n = rounded(b, x, 2 / math.pi)
    negated = b.fneg(whole)
    first = fma(b, negated, number(x, HALF_PI[0]), x)
    second, lost = exact_sum(b, first, b.fmul(negated, number(x, HALF_PI[1])))
    third, more = exact_sum(b, second, b.fmul(negated, number(x, HALF_PI[2])))
    low = b.fadd(b.fadd(lost, more), b.fmul(negated, number(x, HALF_PI[3])))
    r, rest = exact_sum(b, third, low)
    return r, rest, n


def sine_of(b: ir.IRBuilder, r: ir.Value, lost: ir.Value) -> Pair:
    """sin(r + lost) as r and the rest."""
    z = b.fmul(r, r)
    rest = fma(b, b.fmul(z, number(r, -0.5)), lost, lost)
    return r, fma(b, b.fmul(z, r), polynomial(b, z, SIN), rest)


def cosine_of(b: ir.IRBuilder, r: ir.Value, lost: ir.Value) -> Pair:
    """cos(r + lost) as 1 - r²/2 and the rest."""
    z = b.fmul(r, r)
    half, one = b.fmul(z, number(r, 0.5)), number(r, 1.0)
    top = b.fsub(one, half)
    rest = b.fsub(b.fmul(b.fmul(z, z), polynomial(b, z, COS)), b.fmul(r, lost))
    return top, b.fadd(b.fsub(b.fsub(one, top), half), rest)


def settled(b: ir.IRBuilder, x: Pair) -> Pair:
    """A pair whose first is the larger, with the second below an ulp of it."""
    total = b.fadd(*x)
    return total, b.fadd(b.fsub(x[0], total), x[1])


def is_odd(b: ir.IRBuilder, n: ir.Value, bit: int) -> ir.Value:
    return b.icmp_unsigned("!=", b.and_(n, constant(n.type, bit)), constant(n.type, 0))


def near_or_far(b: ir.IRBuilder, name: str, x: ir.Value, near: ir.Value) -> ir.Value:
    """`near` where x is small enough, the C library's function elsewhere."""
    is_far = b.fcmp_ordered(">", absolute(b, x), number(x, FAR))
    return where_any(b, is_far, lambda: library(b, name, (x,)), near)


def sine(b: ir.IRBuilder, x: ir.Value, quarter: int) -> ir.Value:
    """sin(x + quarter·π/2)."""
    r, lost, n = turned(b, x)
    n = b.add(n, constant(n.type, quarter)) if quarter else n
    size = b.fadd(*either(b, is_odd(b, n, 1), cosine_of(b, r, lost), sine_of(b, r, lost)))
    return b.select(is_odd(b, n, 2), b.fneg(size), size)


@vector(trigonometry.sin.op, f64)
def sin(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    near = b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, sine(b, x, 0))
    return near_or_far(b, "sin", x, near)


@vector(trigonometry.cos.op, f64)
def cos(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return near_or_far(b, "cos", x, sine(b, x, 1))


@vector(trigonometry.tan.op, f64)
def tan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    r, lost, n = turned(b, x)
    s, c = (settled(b, pair) for pair in (sine_of(b, r, lost), cosine_of(b, r, lost)))
    odd = is_odd(b, n, 1)
    over, under = either(b, odd, (b.fneg(c[0]), b.fneg(c[1])), s), either(b, odd, s, c)
    inverse = b.fdiv(number(x, 1.0), under[0])
    near = b.fmul(over[0], inverse)
    left = b.fadd(fma(b, b.fneg(near), under[0], over[0]), fma(b, b.fneg(near), under[1], over[1]))
    near = fma(b, left, inverse, near)
    near = b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, near)
    return near_or_far(b, "tan", x, near)


# ----------------------------------------------------------------------------------------- inverses


def arc_of(b: ir.IRBuilder, t: ir.Value) -> ir.Value:
    """atan t - t for |t| <= sqrt 2 - 1."""
    z = b.fmul(t, t)
    return b.fmul(b.fmul(z, t), polynomial(b, z, ATAN))


def angle(b: ir.IRBuilder, y: ir.Value, x: ir.Value) -> Pair:
    """atan(y/x) of 0 <= y <= x as a pair: the arc from a multiple of π/4, whose tangent is small."""
    is_wide = b.fcmp_ordered(">", y, b.fmul(x, number(x, math.sqrt(2) - 1)))
    over = b.select(is_wide, b.fsub(y, x), y)
    under = b.select(is_wide, b.fadd(y, x), x)
    t = b.fdiv(over, under)
    zero = number(x, 0.0)
    base, base_lost = (b.select(is_wide, number(x, v), zero) for v in (PI / 4, PI_LOW / 4))
    top, lost = exact_sum(b, base, t)
    return top, b.fadd(lost, b.fadd(arc_of(b, t), base_lost))


def less_from(b: ir.IRBuilder, factor: float, x: Pair) -> Pair:
    """factor·π - x."""
    top, lost = exact_sum(b, number(x[0], factor * PI), b.fneg(x[0]))
    return top, b.fadd(lost, b.fsub(number(x[0], factor * PI_LOW), x[1]))


def either(b: ir.IRBuilder, condition: ir.Value, x: Pair, y: Pair) -> Pair:
    return b.select(condition, x[0], y[0]), b.select(condition, x[1], y[1])


@vector(trigonometry.atan.op, f64)
def atan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, one = absolute(b, x), number(x, 1.0)
    is_large = b.fcmp_ordered(">", size, one)
    # Of an infinite x only that it is one matters.
    inverse = b.fdiv(one, b.select(is_large, size, one))
    found = angle(b, b.select(is_large, inverse, size), one)
    high, low = either(b, is_large, less_from(b, 0.5, found), found)
    return b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, with_sign(b, b.fadd(high, low), x))


@vector(arithmetic.atan2.op, f64)
def atan2(b: ir.IRBuilder, y: ir.Value, x: ir.Value) -> ir.Value:
    zero, one = number(x, 0.0), number(x, 1.0)
    x_size, y_size = absolute(b, x), absolute(b, y)
    is_steep = b.fcmp_ordered(">", y_size, x_size)
    small, large = b.select(is_steep, x_size, y_size), b.select(is_steep, y_size, x_size)
    # Two infinities are at 45°, the origin is at 0; sums of huge numbers must not overflow, nor tiny ones lose digits.
    is_infinite = b.fcmp_ordered("==", large, number(x, math.inf))
    both = b.fcmp_ordered("==", small, number(x, math.inf))
    scale = b.select(b.fcmp_ordered(">", large, number(x, 2.0**1000)), number(x, 2.0**-40), one)
    scale = b.select(b.fcmp_ordered("<", large, number(x, 2.0**-900)), number(x, 2.0**120), scale)
    small, large = b.fmul(small, scale), b.fmul(large, scale)
    large = b.select(is_infinite, one, large)
    small = b.select(is_infinite, b.select(both, one, zero), small)
    large = b.select(b.fcmp_ordered("==", large, zero), one, large)
    found = angle(b, small, large)
    found = either(b, is_steep, less_from(b, 0.5, found), found)
    is_left = b.icmp_signed("<", bits(b, x), constant(bits(b, x).type, 0))
    high, low = either(b, is_left, less_from(b, 1.0, found), found)
    result = with_sign(b, b.fadd(high, low), y)
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), result)


def root_pair(b: ir.IRBuilder, z: ir.Value) -> Pair:
    """√z as a pair; of 0 it is 0."""
    s = intrinsic(b, "llvm.sqrt", z)
    left = fma(b, b.fneg(s), s, z)
    lost = b.fdiv(left, b.fadd(s, s))
    return s, b.select(b.fcmp_ordered(">", s, number(z, 0.0)), lost, number(z, 0.0))


def arc_sine_parts(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, Pair, Pair]:
    """(|x| <= ½, asin |x| there, 2·asin √((1 - |x|)/2)) as pairs; NaN beyond 1."""
    size = absolute(b, x)
    is_near = b.fcmp_ordered("<=", size, number(x, 0.5))
    z = b.select(is_near, b.fmul(x, x), b.fmul(b.fsub(number(x, 1.0), size), number(x, 0.5)))
    s, lost = root_pair(b, z)
    p = polynomial(b, z, ASIN)
    near = (size, b.fmul(b.fmul(z, size), p))
    rest = fma(b, b.fmul(z, s), p, lost)
    return is_near, near, (b.fadd(s, s), b.fadd(rest, rest))


@vector(trigonometry.asin.op, f64)
def asin(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    is_near, near, far = arc_sine_parts(b, x)
    high, low = either(b, is_near, near, less_from(b, 0.5, far))
    return with_sign(b, b.fadd(high, low), x)


@vector(trigonometry.acos.op, f64)
def acos(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    is_near, near, far = arc_sine_parts(b, x)
    is_left = b.fcmp_ordered("<", x, number(x, 0.0))
    signed = either(b, is_left, (b.fneg(near[0]), b.fneg(near[1])), near)
    outer = either(b, is_left, less_from(b, 1.0, far), far)
    high, low = either(b, is_near, less_from(b, 0.5, signed), outer)
    return b.fadd(high, low)


@vector(trigonometry.asinh.op, f64)
def asinh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, one = absolute(b, x), number(x, 1.0)
    # asinh x = ln(1 + x + x²/(1 + √(1 + x²))); a large x is divided first, so that its square is finite.
    is_large = b.fcmp_ordered(">", size, number(x, 2.0**28))
    a = b.select(is_large, one, size)
    square = b.fmul(a, a)
    share = b.fdiv(square, b.fadd(one, intrinsic(b, "llvm.sqrt", b.fadd(square, one))))
    near = exact_sum(b, a, share)
    # ln(1 + (x - 1)) + ln 2 for a large one.
    far = log1p_of(b, (b.select(is_large, b.fsub(size, one), near[0]), b.select(is_large, number(x, 0.0), near[1])))
    result = b.select(is_large, b.fadd(far, number(x, math.log(2))), far)
    return b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, with_sign(b, result, x))


@vector(trigonometry.acosh.op, f64)
def acosh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    one = number(x, 1.0)
    is_large = b.fcmp_ordered(">", x, number(x, 2.0**28))
    a = b.select(is_large, one, x)
    t = b.fsub(a, one)
    square, lost = exact_product(b, t, t)
    w, more = exact_sum(b, b.fadd(t, t), square)
    s, s_lost = root_pair(b, w)
    more = b.fdiv(b.fadd(more, lost), b.fadd(b.fadd(s, s), number(x, 1e-300)))
    high, low = exact_sum(b, t, s)
    low = b.fadd(low, b.fadd(s_lost, more))
    far = log1p_of(b, (b.select(is_large, b.fsub(x, one), high), b.select(is_large, number(x, 0.0), low)))
    result = b.select(is_large, b.fadd(far, number(x, math.log(2))), far)
    return b.select(b.fcmp_unordered("<", x, one), number(x, math.nan), result)


@vector(trigonometry.atanh.op, f64)
def atanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, one, half = absolute(b, x), number(x, 1.0), number(x, 0.5)
    divisor = exact_sum(b, one, b.fneg(size))
    quotient, lost = exact_quotient(b, b.fadd(size, size), divisor)
    is_one = b.fcmp_ordered("==", size, one)
    lost = b.select(is_one, number(x, 0.0), lost)
    found = b.fmul(half, log1p_of(b, (quotient, lost)))
    found = b.select(is_one, number(x, math.inf), found)
    tiny = b.fcmp_ordered("<", size, number(x, 2.0**-28))
    result = b.select(tiny, fma(b, b.fmul(b.fmul(x, x), number(x, 1 / 3)), size, size), found)
    return with_sign(b, result, x)


@vector(arithmetic.hypot.op, f64)
def hypot(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    x_size, y_size, infinity = absolute(b, x), absolute(b, y), number(x, math.inf)
    is_first = b.fcmp_ordered(">", x_size, y_size)
    large, small = b.select(is_first, x_size, y_size), b.select(is_first, y_size, x_size)
    scale = b.select(b.fcmp_ordered(">", large, number(x, 2.0**500)), number(x, 2.0**-600), number(x, 1.0))
    scale = b.select(b.fcmp_ordered("<", large, number(x, 2.0**-400)), number(x, 2.0**600), scale)
    back = b.select(b.fcmp_ordered(">", large, number(x, 2.0**500)), number(x, 2.0**600), number(x, 1.0))
    back = b.select(b.fcmp_ordered("<", large, number(x, 2.0**-400)), number(x, 2.0**-600), back)
    large, small = b.fmul(large, scale), b.fmul(small, scale)
    square, lost = exact_product(b, large, large)
    other, other_lost = exact_product(b, small, small)
    total, more = exact_sum(b, square, other)
    s, s_lost = root_pair(b, total)
    rest = b.fdiv(b.fadd(more, b.fadd(lost, other_lost)), b.fadd(b.fadd(s, s), number(x, 1e-300)))
    found = b.fmul(b.fadd(s, b.fadd(s_lost, rest)), back)
    found = b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), found)
    is_infinite = b.or_(b.fcmp_ordered("==", x_size, infinity), b.fcmp_ordered("==", y_size, infinity))
    return b.select(is_infinite, infinity, found)

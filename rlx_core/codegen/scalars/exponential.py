"""Exponentials, logarithms and tanh of f32: range reduction, one polynomial, and the special values as selects.

Coefficients are minimax fits by the authors (weighted least squares at Chebyshev nodes, reweighted until the error is level),
rounded to f32; the error next to each is that of the polynomial alone. Constants whose low part matters are split in two. Tests
measure every function against float64: the error of each is at most 2 ulp.
"""

from __future__ import annotations

import math

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.floats import above, clamped, polynomial, power_of_two, rounded
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32, i32
from rlx_core.ir.op import Op
from rlx_core.ops import activation

# ln 2 in two pieces: the first has 15 bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
SHIFT = 1.5 * 2**23
"""Added to a float below 2^22, it leaves the nearest integer in the low bits."""

# (e^r - 1 - r)/r² on |r| <= ln2/2: 4.8e-11
EXP = (0.5, 0.16666667, 0.04166627, 0.008333266, 0.0013946084, 0.00019917829)
# (ln(1 + f) - f + f²/2)/f³ on sqrt(1/2) - 1 .. sqrt 2 - 1: 7.3e-10
LOG = (0.3333331, -0.24999987, 0.20002227, -0.16669251, 0.14218658, -0.12384348, 0.11872976, -0.11789808, 0.06915368)
# (tanh(√s) - √s)/√s³ on s <= 0.625²: 1.5e-10
TANH = (-0.3333333, 0.1333321, -0.0539472, 0.021702968, -0.0081826737, 0.002147537)


def reduced(b: Assembler[V], x: V) -> tuple[V, V, V]:
    """(e^r - 1, n as a float, n) with x = r + n·ln 2, for |x| < 2^20."""
    integral, n = rounded(b, x, math.log2(math.e))
    negated = b.fneg(integral)
    r = b.fma(negated, b.constant(x, LN2_HIGH), x)
    r = b.fma(negated, b.constant(x, LN2_LOW), r)
    return b.fma(polynomial(b, r, EXP), b.fmul(r, r), r), integral, n


def exponential_times(b: Assembler[V], x: V, x_lost: V, y: V, y_lost: V) -> V:
    """e^(x + x_lost)·(y + y_lost) for -105 < x < 89, with hardly more than the last rounding."""
    integral, n = rounded(b, x, math.log2(math.e))
    negated = b.fneg(integral)
    first = b.fma(negated, b.constant(x, LN2_HIGH), x)
    r = b.fma(negated, b.constant(x, LN2_LOW), first)
    r_lost = b.fadd(b.fma(negated, b.constant(x, LN2_LOW), b.fsub(first, r)), x_lost)
    # e^(r + r_lost) - 1 = r + (r² P(r) + r_lost e^r): the first term alone, so that it is rounded once, with y.
    square = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    grown = b.fadd(r, square)
    correction = b.fadd(square, b.fma(r_lost, grown, r_lost))
    low = b.fma(y, r, b.fma(y, correction, b.fma(y_lost, grown, y_lost)))
    return b.scaled(b.fadd(y, low), integral, n)


def exponential(b: Assembler[V], x: V) -> V:
    """e^x; 0 below -104 and infinity above 88.73."""
    tail, integral, n = reduced(b, clamped(b, x, -104.0, 89.0))
    return b.scaled(above(b, x, -104.0, b.fadd(tail, b.constant(x, 1.0))), integral, n)


def exp2(b: Assembler[V], x: V) -> V:
    near = clamped(b, x, -151.0, 129.0)
    integral, n = rounded(b, near)
    r = b.fmul(b.fsub(near, integral), b.constant(x, math.log(2)))
    tail = b.fma(polynomial(b, r, EXP), b.fmul(r, r), r)
    return b.scaled(above(b, x, -151.0, b.fadd(tail, b.constant(x, 1.0))), integral, n)


def expm1(b: Assembler[V], x: V) -> V:
    original = x
    tail, _, n = reduced(b, clamped(b, x, -20.0, 89.0))
    # Half the power, so that 2^128 does not appear where the result is still finite.
    scale = power_of_two(b, b.sub(n, b.constant(n, 1)), x)
    result = b.fma(tail, scale, b.fsub(scale, b.constant(x, 0.5)))
    result = b.fadd(result, result)
    return b.select(b.fcmp_ordered("==", original, b.constant(x, 0.0)), original, result)


def parted(b: Assembler[V], x: V) -> tuple[V, V]:
    """(m - 1, e as a float) with x = m·2^e and m within a factor of sqrt 2 of 1."""
    is_tiny = b.fcmp_ordered("<", x, b.constant(x, 2.0**-126))
    pattern = b.bits(b.select(is_tiny, b.fmul(x, b.constant(x, 2.0**23)), x))
    lowest = b.constant(pattern, 0x3F3504F3)  # sqrt(1/2)
    exponent = b.ashr(b.sub(pattern, lowest), b.constant(pattern, 23))
    m = b.from_bits(b.sub(pattern, b.shl(exponent, b.constant(pattern, 23))), x)
    e = b.converted(exponent, i32, f32)
    e = b.select(is_tiny, b.fsub(e, b.constant(x, 23.0)), e)
    return b.fsub(m, b.constant(x, 1.0)), e


def split(b: Assembler[V], x: V) -> tuple[V, V]:
    """(e, ln m) with x = m·2^e and m within a factor of sqrt 2 of 1; e as a float."""
    f, e = parted(b, x)
    square = b.fmul(f, f)
    cubic = b.fmul(b.fmul(square, f), polynomial(b, f, LOG))
    return e, b.fadd(f, b.fma(square, b.constant(x, -0.5), cubic))


def with_edges(b: Assembler[V], x: V, inside: V) -> V:
    """A logarithm where it is not a number or infinite."""
    infinity = b.constant(x, math.inf)
    result = b.select(b.fcmp_ordered("==", x, infinity), infinity, inside)
    result = b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), b.constant(x, -math.inf), result)
    return b.select(b.fcmp_unordered("<", x, b.constant(x, 0.0)), b.constant(x, math.nan), result)


def finite_log(b: Assembler[V], x: V) -> V:
    """ln x for a finite x > 0."""
    e, mantissa = split(b, x)
    low = b.fma(e, b.constant(x, LN2_LOW), mantissa)
    return b.fma(e, b.constant(x, LN2_HIGH), low)


def log(b: Assembler[V], x: V) -> V:
    return with_edges(b, x, finite_log(b, x))


def log2(b: Assembler[V], x: V) -> V:
    e, mantissa = split(b, x)
    return with_edges(b, x, b.fma(mantissa, b.constant(x, math.log2(math.e)), e))


def log1p(b: Assembler[V], x: V) -> V:
    one = b.constant(x, 1.0)
    u = b.fadd(x, one)
    e, mantissa = split(b, u)
    # What rounding 1 + x lost, to first order.
    lost = b.fdiv(b.fsub(x, b.fsub(u, one)), u)
    low = b.fadd(b.fma(e, b.constant(x, LN2_LOW), lost), mantissa)
    inside = with_edges(b, u, b.fma(e, b.constant(x, LN2_HIGH), low))
    is_tiny = b.fcmp_ordered("<", b.fabs(x), b.constant(x, 2.0**-25))
    return b.select(is_tiny, x, inside)


def tanh(b: Assembler[V], x: V) -> V:
    size, square, one = b.fabs(x), b.fmul(x, x), b.constant(x, 1.0)
    near = b.fma(b.fmul(square, size), polynomial(b, square, TANH), size)
    # 1 - 2/(e^2a + 1). One piece of ln 2 is enough: its error grows with the exponent, which the quotient divides by e^2a.
    twice = b.fmul(clamped(b, size, None, 10.0), b.constant(x, 2.0))
    shifted = b.fma(twice, b.constant(x, math.log2(math.e)), b.constant(x, SHIFT))
    r = b.fma(b.fsub(b.constant(x, SHIFT), shifted), b.constant(x, math.log(2)), twice)
    tail = b.fma(polynomial(b, r, EXP), b.fmul(r, r), r)
    pattern = b.bits(shifted)
    power = b.add(b.shl(pattern, b.constant(pattern, 23)), b.constant(pattern, 0x3F800000))
    scale = b.from_bits(power, x)
    outer = b.fsub(one, b.fdiv(b.constant(x, 2.0), b.fma(tail, scale, b.fadd(scale, one))))
    result = b.select(b.fcmp_ordered("<", size, b.constant(x, 0.625)), near, outer)
    return b.copysign(result, x)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.exp.op, f32): exponential,
    (activation.exp2.op, f32): exp2,
    (activation.expm1.op, f32): expm1,
    (activation.log.op, f32): log,
    (activation.log2.op, f32): log2,
    (activation.log1p.op, f32): log1p,
    (activation.tanh.op, f32): tanh,
}

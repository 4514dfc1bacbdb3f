"""Exponentials, logarithms, powers and hyperbolic functions in f64 as vector code; f32 takes what it has no own form of."""

from __future__ import annotations

import math

from rlx_core.ir.dtypes import f64
from rlx_core.ops import activation, arithmetic, trigonometry
from rlx_cpu.native import ir
from rlx_cpu.native.build import constant, intrinsic
from rlx_cpu.native.coefficients import CBRT, EXP, LOG, LOG_TAIL, SINH, TANH
from rlx_cpu.native.floats import (
    Pair,
    absolute,
    bits,
    exact_product,
    exact_quotient,
    exact_sum,
    fma,
    held,
    polynomial,
    power_of_two,
    rounded,
    scaled_by,
    with_sign,
)
from rlx_cpu.native.functions import vector

__all__ = ["exponential", "exponential_of", "finite_log", "log", "log1p_of", "log_pair", "number"]

# ln 2 in two pieces: the first has 32 bits, so that its product with an exponent is exact. Likewise log₁₀ 2.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG10_2_HIGH, LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13
LOG2_E, LOG2_E_LOW = 1.4426950408889634, 2.0355273740931033e-17
LOG10_E, LOG10_E_LOW = 0.4342944819032518, 1.098319650216765e-17
THIRD_LOW = 1 / 3 / 2**54
"""1/3 less the nearest double."""


def number(x: ir.Value, value: float) -> ir.Constant:
    return constant(x.type, value)


# ------------------------------------------------------------------------------------ exponentials


def reduced(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(r, n as a float, n) with x = r + n·ln 2."""
    whole, n = rounded(b, x, LOG2_E)
    r = fma(b, b.fneg(whole), number(x, LN2_HIGH), x)
    return fma(b, b.fneg(whole), number(x, LN2_LOW), r), whole, n


def tail_of(b: ir.IRBuilder, r: ir.Value) -> ir.Value:
    """e^r - 1 for |r| <= ln2/2."""
    return fma(b, polynomial(b, r, EXP), b.fmul(r, r), r)


def exponential(b: ir.IRBuilder, x: ir.Value, halvings: int = 0) -> ir.Value:
    """e^x / 2^halvings; 0 far below and infinity far above."""
    r, whole, n = reduced(b, held(b, x, -750.0, 711.0))
    n = b.sub(n, constant(n.type, halvings)) if halvings else n
    return scaled_by(b, b.fadd(tail_of(b, r), number(x, 1.0)), whole, n)


def exponential_of(b: ir.IRBuilder, x: Pair) -> ir.Value:
    """e^(x + x_lost) with hardly more than the last rounding, for -750 <= x <= 711."""
    high, lost = x
    whole, n = rounded(b, high, LOG2_E)
    first = fma(b, b.fneg(whole), number(high, LN2_HIGH), high)
    r = fma(b, b.fneg(whole), number(high, LN2_LOW), first)
    r_lost = b.fadd(fma(b, b.fneg(whole), number(high, LN2_LOW), b.fsub(first, r)), lost)
    rest = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    rest = b.fadd(rest, fma(b, r_lost, b.fadd(r, rest), r_lost))
    top, top_lost = exact_sum(b, number(high, 1.0), r)
    return scaled_by(b, b.fadd(top, b.fadd(top_lost, rest)), whole, n)


@vector(activation.exp.op, f64)
def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return exponential(b, x)


@vector(activation.exp2.op, f64)
def exp2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    x = held(b, x, -1080.0, 1025.0)
    whole, n = rounded(b, x)
    part = b.fsub(x, whole)
    r, lost = exact_product(b, part, number(x, math.log(2)))
    lost = fma(b, part, number(x, 2.3190468138462996e-17), lost)
    tail = b.fadd(tail_of(b, r), lost)
    return scaled_by(b, b.fadd(tail, number(x, 1.0)), whole, n)


@vector(activation.expm1.op, f64)
def expm1(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    r, _, n = reduced(b, held(b, x, -40.0, 710.0))
    # Half the power, so that 2^1024 does not appear where the result is still finite.
    scale = power_of_two(b, b.sub(n, constant(n.type, 1)), x)
    result = fma(b, tail_of(b, r), scale, b.fsub(scale, number(x, 0.5)))
    result = b.fadd(result, result)
    return b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, result)


# -------------------------------------------------------------------------------------- logarithms


def split(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m - 1, e as a float) with x = m·2^e and m within a factor of sqrt 2 of 1."""
    is_tiny = b.fcmp_ordered("<", x, number(x, 2.0**-1022))
    whole = bits(b, b.select(is_tiny, b.fmul(x, number(x, 2.0**52)), x))
    # The exponent of x·sqrt 2, by a logical shift of a number that is not negative.
    moved = b.add(b.sub(whole, constant(whole.type, 0x3FE6A09E667F3BCD)), constant(whole.type, 1023 << 52))
    biased = b.lshr(moved, constant(whole.type, 52))
    shift = b.sub(biased, constant(whole.type, 1023))
    m = b.bitcast(b.sub(whole, b.shl(shift, constant(whole.type, 52))), x.type)
    # As a float: the bits of 2^52 + biased, less that.
    magic = b.bitcast(b.or_(biased, constant(whole.type, 0x4330000000000000)), x.type)
    e = b.fsub(magic, number(x, 2.0**52 + 1023))
    return b.fsub(m, number(x, 1.0)), b.select(is_tiny, b.fsub(e, number(x, 52.0)), e)


def log_of_mantissa(b: ir.IRBuilder, f: ir.Value) -> Pair:
    """ln(1 + f) as f - f²/2 and what is missing."""
    s = b.fdiv(f, b.fadd(f, number(f, 2.0)))
    z = b.fmul(s, s)
    half = b.fmul(b.fmul(f, number(f, 0.5)), f)
    rest = b.fmul(s, fma(b, z, polynomial(b, z, LOG), half))
    high = b.fsub(f, half)
    half_lost = b.fsub(half, fma(b, b.fmul(f, number(f, 0.5)), f, number(f, 0.0)))
    return high, b.fadd(b.fsub(b.fsub(b.fsub(f, high), half), half_lost), rest)


def edges(b: ir.IRBuilder, x: ir.Value, inside: ir.Value) -> ir.Value:
    """A logarithm where it is not a number or infinite."""
    result = b.select(b.fcmp_ordered("==", x, number(x, math.inf)), number(x, math.inf), inside)
    result = b.select(b.fcmp_ordered("==", x, number(x, 0.0)), number(x, -math.inf), result)
    return b.select(b.fcmp_unordered("<", x, number(x, 0.0)), number(x, math.nan), result)


def finite_log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """ln x for a finite x > 0."""
    f, e = split(b, x)
    high, low = log_of_mantissa(b, f)
    top, lost = exact_sum(b, b.fmul(e, number(x, LN2_HIGH)), high)
    return b.fadd(top, b.fadd(lost, fma(b, e, number(x, LN2_LOW), low)))


@vector(activation.log.op, f64)
def log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return edges(b, x, finite_log(b, x))


def other_base(b: ir.IRBuilder, x: ir.Value, factor: tuple[float, float], of_two: tuple[float, float]) -> ir.Value:
    """A logarithm to another base: the natural one of the mantissa times `factor`, and the exponent times `of_two`."""
    f, e = split(b, x)
    high, low = log_of_mantissa(b, f)
    p, p_lost = exact_product(b, high, number(x, factor[0]))
    p_lost = b.fadd(p_lost, fma(b, low, number(x, factor[0]), b.fmul(high, number(x, factor[1]))))
    top, lost = exact_sum(b, b.fmul(e, number(x, of_two[0])), p)
    return edges(b, x, b.fadd(top, b.fadd(lost, fma(b, e, number(x, of_two[1]), p_lost))))


@vector(activation.log2.op, f64)
def log2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return other_base(b, x, (LOG2_E, LOG2_E_LOW), (1.0, 0.0))


@vector(activation.log10.op, f64)
def log10(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return other_base(b, x, (LOG10_E, LOG10_E_LOW), (LOG10_2_HIGH, LOG10_2_LOW))


def log1p_of(b: ir.IRBuilder, x: Pair) -> ir.Value:
    """ln(1 + x + x_lost)."""
    high, lost = x
    u, u_lost = exact_sum(b, number(high, 1.0), high)
    f, e = split(b, u)
    top, low = log_of_mantissa(b, f)
    low = b.fadd(low, b.fdiv(b.fadd(u_lost, lost), u))
    total, rest = exact_sum(b, b.fmul(e, number(high, LN2_HIGH)), top)
    inside = edges(b, u, b.fadd(total, b.fadd(rest, fma(b, e, number(high, LN2_LOW), low))))
    is_tiny = b.fcmp_ordered("<", absolute(b, high), number(high, 2.0**-54))
    return b.select(is_tiny, b.fadd(high, lost), inside)


@vector(activation.log1p.op, f64)
def log1p(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # Of -0 the sum with a lost +0 would lose the sign.
    return b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, log1p_of(b, (x, number(x, 0.0))))


@vector(arithmetic.logaddexp.op, f64)
def logaddexp(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    is_first = b.fcmp_ordered(">", x, y)
    larger = b.select(is_first, x, y)
    # Equal infinities have no difference.
    distance = b.select(b.fcmp_ordered("==", x, y), number(x, 0.0), b.fneg(absolute(b, b.fsub(x, y))))
    total = b.fadd(larger, log1p_of(b, (exponential(b, distance), number(x, 0.0))))
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), total)


# ------------------------------------------------------------------------------- powers and roots


def log_pair(b: ir.IRBuilder, x: ir.Value) -> Pair:
    """ln x to twice the digits, nearly: what is multiplied by an exponent of hundreds must have ten bits more."""
    f, e = split(b, x)
    d, d_lost = exact_sum(b, number(x, 2.0), f)
    s, s_lost = exact_quotient(b, f, (d, d_lost))
    z, z_lost = exact_product(b, s, s)
    z_lost = b.fadd(z_lost, b.fmul(b.fadd(s, s), s_lost))
    third, w = number(x, 1 / 3), b.fmul(z, polynomial(b, z, LOG_TAIL))
    inner = b.fadd(third, w)
    inner_lost = b.fadd(b.fadd(b.fsub(third, inner), w), number(x, THIRD_LOW))
    cube, cube_lost = exact_product(b, z, s)
    cube_lost = b.fadd(cube_lost, fma(b, z, s_lost, b.fmul(z_lost, s)))
    q, q_lost = exact_product(b, cube, inner)
    q_lost = b.fadd(q_lost, fma(b, cube, inner_lost, b.fmul(cube_lost, inner)))
    h, lost = exact_sum(b, s, q)
    lost = b.fadd(lost, b.fadd(s_lost, q_lost))
    top, rest = exact_sum(b, b.fmul(e, number(x, LN2_HIGH)), b.fadd(h, h))
    rest = b.fadd(rest, fma(b, e, number(x, LN2_LOW), b.fadd(lost, lost)))
    return exact_sum(b, top, rest)


@vector(arithmetic.pow.op, f64)
def pow(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    zero, one, infinity = (number(x, v) for v in (0.0, 1.0, math.inf))
    size = absolute(b, x)
    log_high, log_low = log_pair(b, size)
    p, lost = exact_product(b, y, log_high)
    lost = fma(b, y, log_low, lost)
    is_far = b.fcmp_unordered(">", absolute(b, p), number(x, 740.0 + 10.0))
    result = exponential_of(b, (held(b, p, -750.0, 711.0), b.select(is_far, zero, lost)))
    is_zero, is_infinite = b.fcmp_ordered("==", size, zero), b.fcmp_ordered("==", size, infinity)
    is_negative = b.fcmp_ordered("<", y, zero)
    edge = b.select(b.xor(is_zero, is_negative), zero, infinity)
    result = b.select(b.or_(is_zero, is_infinite), edge, result)
    # 1 to an infinite power is 1, and so is -1; NaN to the power 0, and 1 to the power NaN.
    result = b.select(b.fcmp_ordered("==", size, one), b.select(b.fcmp_ordered("==", y, y), one, y), result)
    whole = intrinsic(b, "llvm.floor", y)
    half = b.fmul(y, number(x, 0.5))
    is_whole = b.fcmp_ordered("==", whole, y)
    is_odd = b.and_(is_whole, b.fcmp_unordered("!=", intrinsic(b, "llvm.floor", half), half))
    signed = with_sign(b, result, x)
    result = b.select(is_odd, signed, result)
    is_finite = b.and_(b.fcmp_ordered("<", x, zero), b.fcmp_ordered(">", x, number(x, -math.inf)))
    result = b.select(b.and_(is_finite, b.not_(is_whole)), number(x, math.nan), result)
    result = b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), result)
    return b.select(b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one)), one, result)


@vector(activation.cbrt.op, f64)
def cbrt(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size = absolute(b, x)
    f, e = split(b, size)
    third = intrinsic(b, "llvm.floor", b.fmul(b.fadd(e, number(x, -0.5)), number(x, 1 / 3)))
    # m·2^(e - 3·third) lies in sqrt(1/2)·2 .. sqrt 2·8, of which an eighth or the whole is in 1 .. 8.
    over = b.fsub(e, b.fmul(number(x, 3.0), third))
    _, rest = rounded(b, over)
    m = b.fmul(b.fadd(f, number(x, 1.0)), power_of_two(b, rest, x))
    y = polynomial(b, m, CBRT)
    for _ in range(2):
        # Halley: the error is cubed.
        cube = b.fmul(b.fmul(y, y), y)
        y = b.fmul(y, b.fdiv(b.fadd(cube, b.fadd(m, m)), b.fadd(b.fadd(cube, cube), m)))
    square, lost = exact_product(b, y, y)
    left = fma(b, lost, y, fma(b, square, y, b.fneg(m)))
    y = b.fsub(y, b.fdiv(left, b.fmul(square, number(x, 3.0))))
    _, n = rounded(b, third)
    result = with_sign(b, b.fmul(y, power_of_two(b, n, x)), x)
    is_edge = b.or_(b.fcmp_unordered("==", x, number(x, 0.0)), b.fcmp_unordered("==", size, number(x, math.inf)))
    return b.select(is_edge, x, result)


# -------------------------------------------------------------------------------------- hyperbolic


@vector(trigonometry.sinh.op, f64)
def sinh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, square = absolute(b, x), b.fmul(x, x)
    near = fma(b, b.fmul(square, x), polynomial(b, square, SINH), x)
    half = exponential(b, size, 1)
    far = with_sign(b, b.fsub(half, b.fdiv(number(x, 0.25), half)), x)
    return b.select(b.fcmp_ordered("<", size, number(x, 1.0)), near, far)


@vector(trigonometry.cosh.op, f64)
def cosh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    half = exponential(b, absolute(b, x), 1)
    return b.fadd(half, b.fdiv(number(x, 0.25), half))


@vector(activation.tanh.op, f64)
def tanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, square, one = absolute(b, x), b.fmul(x, x), number(x, 1.0)
    near = fma(b, b.fmul(square, x), polynomial(b, square, TANH), x)
    power = exponential(b, held(b, b.fadd(size, size), None, 44.0))
    far = b.fsub(one, b.fdiv(number(x, 2.0), b.fadd(power, one)))
    return with_sign(b, b.select(b.fcmp_ordered("<", size, number(x, 0.625)), near, far), x)

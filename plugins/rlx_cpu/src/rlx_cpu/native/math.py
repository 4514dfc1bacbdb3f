"""The f32 functions as vector code: range reduction, one polynomial, and the special values as selects.

Coefficients are minimax fits of our own (weighted least squares at Chebyshev nodes, reweighted until the error is level), rounded
to f32; the error beside each is that of the polynomial alone. Constants whose low part matters come in two pieces.
`tests/native/test_math.py` of this package measures every function against float64: none is off by more than 2 ulp, but for
GELU, whose product of three is off by 2.60 at most with AVX-512 and by 3.13 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_core.ops import activation
from rlx_cpu.native import ir
from rlx_cpu.native.build import constant, intrinsic
from rlx_cpu.native.coefficients import GELU
from rlx_cpu.native.floats import above, bits, fma, held, polynomial, power_of_two, rounded, scaled_by, scaled_up
from rlx_cpu.native.functions import vector
from rlx_cpu.native.idioms import gelu_slope
from rlx_cpu.native.piece_coefficients import (
    GELU_PIECES,
    GELU_SCALE,
    ROOTS,
    SLOPE_PIECES,
    SLOPE_SCALE,
    TANH_PIECES,
    TANH_SCALE,
)
from rlx_cpu.native.pieces import has_pieces, picked, piecewise, replaced

__all__ = ["finite_log"]

# ln 2 in two pieces: the first has 15 bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
SHIFT = 1.5 * 2**23
"""Added to a float below 2^22, it leaves the nearest integer in the low bits."""

BIAS, UP = 127, 64
"""Of exponents in f32; and by how much those of a decaying function are raised, so that none is below the smallest."""

# (e^r - 1 - r)/r² on |r| <= ln2/2: 4.8e-11
EXP = (0.5, 0.16666667, 0.04166627, 0.008333266, 0.0013946084, 0.00019917829)
# (ln(1 + f) - f + f²/2)/f³ on sqrt(1/2) - 1 .. sqrt 2 - 1: 7.3e-10
LOG = (0.3333331, -0.24999987, 0.20002227, -0.16669251, 0.14218658, -0.12384348, 0.11872976, -0.11789808, 0.06915368)
# (tanh(√s) - √s)/√s³ on s <= 0.625²: 1.5e-10
TANH = (-0.3333333, 0.1333321, -0.0539472, 0.021702968, -0.0081826737, 0.002147537)
# erf(√s)/√s - 1 on s <= 0.921875²: 4e-10
ERF = (0.12837917, -0.37612635, 0.11283702, -0.026859703, 0.0052017157, -0.0008149807, 8.3978018e-05)
# ln erfc(a) on 0.921875 .. 3.95, weighted by erfc: 4e-11
ERF_TAIL = (
    1.7636211e-4,
    -1.1295232,
    -0.63332993,
    -0.108299106,
    0.025131952,
    -0.0041759023,
    4.3547808e-4,
    -2.1184265e-05,
)
# (1 + 2a)·e^(a²)·erfc(a) in q = (a - 3)/(a + 3) on 0 .. 10.1: 6e-10
ERFC = (
    *(1.253008, -0.13562112, -0.04756238, 0.12964542, -0.11927167, 0.06830575, -0.023787586),
    *(0.0025307995, 0.0019508287, -0.0007431189, -0.00018492942, 3.456989e-05),
)

GELU_LINE = 0x17131122
"""max(x, -0) by the kind of x, and NaN for -inf, where the formula says -inf·0; see `replaced`."""

# What its first coefficient lost when it was rounded to f32.
ERFC_LOW = 5.0909e-8


def reduced(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(e^r - 1, n as a float, n) with x = r + n·ln 2, for |x| < 2^20."""
    whole, n = rounded(b, x, math.log2(math.e))
    negated = b.fneg(whole)
    r = fma(b, negated, constant(x.type, LN2_HIGH), x)
    r = fma(b, negated, constant(x.type, LN2_LOW), r)
    return fma(b, polynomial(b, r, EXP), b.fmul(r, r), r), whole, n


def exponential_times(b: ir.IRBuilder, x: ir.Value, x_lost: ir.Value, y: ir.Value, y_lost: ir.Value) -> ir.Value:
    """e^(x + x_lost)·(y + y_lost) for -105 < x <= 0, with hardly more than the last rounding."""
    whole, n = rounded(b, x, math.log2(math.e))
    negated = b.fneg(whole)
    first = fma(b, negated, constant(x.type, LN2_HIGH), x)
    r = fma(b, negated, constant(x.type, LN2_LOW), first)
    r_lost = b.fadd(fma(b, negated, constant(x.type, LN2_LOW), b.fsub(first, r)), x_lost)
    # e^(r + r_lost) - 1 = r + (r² P(r) + r_lost e^r): the first term alone, so that it is rounded once, with y.
    square = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    grown = b.fadd(r, square)
    rest = b.fadd(square, fma(b, r_lost, grown, r_lost))
    low = fma(b, y, r, fma(b, y, rest, fma(b, y_lost, grown, y_lost)))
    return scaled_by(b, b.fadd(y, low), whole, n)


def exponential(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e^x; 0 below -104 and infinity above 88.73."""
    tail, whole, n = reduced(b, held(b, x, -104.0, 89.0))
    return scaled_by(b, above(b, x, -104.0, b.fadd(tail, constant(x.type, 1.0))), whole, n)


@vector(activation.exp.op)
def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return exponential(b, x)


@vector(activation.exp2.op)
def exp2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    near = held(b, x, -151.0, 129.0)
    whole, n = rounded(b, near)
    r = b.fmul(b.fsub(near, whole), constant(x.type, math.log(2)))
    tail = fma(b, polynomial(b, r, EXP), b.fmul(r, r), r)
    return scaled_by(b, above(b, x, -151.0, b.fadd(tail, constant(x.type, 1.0))), whole, n)


@vector(activation.expm1.op)
def expm1(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    small = x
    tail, _, n = reduced(b, held(b, x, -20.0, 89.0))
    # Half the power, so that 2^128 does not appear where the result is still finite.
    scale = power_of_two(b, b.sub(n, constant(n.type, 1)), x)
    result = fma(b, tail, scale, b.fsub(scale, constant(x.type, 0.5)))
    result = b.fadd(result, result)
    return b.select(b.fcmp_ordered("==", small, constant(x.type, 0.0)), small, result)


def split(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(e, ln m) with x = m·2^e and m within a factor of sqrt 2 of 1; e as a float."""
    is_tiny = b.fcmp_ordered("<", x, constant(x.type, 2.0**-126))
    whole = bits(b, b.select(is_tiny, b.fmul(x, constant(x.type, 2.0**23)), x))
    lowest = constant(whole.type, 0x3F3504F3)  # sqrt(1/2)
    exponent = b.ashr(b.sub(whole, lowest), constant(whole.type, 23))
    m = b.bitcast(b.sub(whole, b.shl(exponent, constant(whole.type, 23))), x.type)
    e = b.sitofp(exponent, x.type)
    e = b.select(is_tiny, b.fsub(e, constant(x.type, 23.0)), e)
    f = b.fsub(m, constant(x.type, 1.0))
    square = b.fmul(f, f)
    cubic = b.fmul(b.fmul(square, f), polynomial(b, f, LOG))
    return e, b.fadd(f, fma(b, square, constant(x.type, -0.5), cubic))


def with_edges(b: ir.IRBuilder, x: ir.Value, inside: ir.Value) -> ir.Value:
    """A logarithm where it is not a number or infinite."""
    infinity = constant(x.type, math.inf)
    result = b.select(b.fcmp_ordered("==", x, infinity), infinity, inside)
    result = b.select(b.fcmp_ordered("==", x, constant(x.type, 0.0)), constant(x.type, -math.inf), result)
    return b.select(b.fcmp_unordered("<", x, constant(x.type, 0.0)), constant(x.type, math.nan), result)


def finite_log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """ln x for a finite x > 0."""
    e, mantissa = split(b, x)
    low = fma(b, e, constant(x.type, LN2_LOW), mantissa)
    return fma(b, e, constant(x.type, LN2_HIGH), low)


@vector(activation.log.op)
def log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return with_edges(b, x, finite_log(b, x))


@vector(activation.log2.op)
def log2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    e, mantissa = split(b, x)
    return with_edges(b, x, fma(b, mantissa, constant(x.type, math.log2(math.e)), e))


@vector(activation.log1p.op)
def log1p(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    one = constant(x.type, 1.0)
    u = b.fadd(x, one)
    e, mantissa = split(b, u)
    # What rounding 1 + x lost, to first order.
    lost = b.fdiv(b.fsub(x, b.fsub(u, one)), u)
    low = b.fadd(fma(b, e, constant(x.type, LN2_LOW), lost), mantissa)
    inside = with_edges(b, u, fma(b, e, constant(x.type, LN2_HIGH), low))
    is_tiny = b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", x), constant(x.type, 2.0**-25))
    return b.select(is_tiny, x, inside)


@vector(activation.tanh.op)
def tanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    if has_pieces(x):
        size = held(b, intrinsic(b, "llvm.fabs", x), None, 9.125)
        return intrinsic(b, "llvm.copysign", piecewise(b, size, TANH_SCALE, TANH_PIECES), x)
    size, square, one = intrinsic(b, "llvm.fabs", x), b.fmul(x, x), constant(x.type, 1.0)
    near = fma(b, b.fmul(square, size), polynomial(b, square, TANH), size)
    # 1 - 2/(e^2a + 1). One piece of ln 2 is enough: its error grows with the exponent, which the quotient divides by e^2a.
    twice = b.fmul(held(b, size, None, 10.0), constant(x.type, 2.0))
    shifted = fma(b, twice, constant(x.type, math.log2(math.e)), constant(x.type, SHIFT))
    r = fma(b, b.fsub(constant(x.type, SHIFT), shifted), constant(x.type, math.log(2)), twice)
    tail = fma(b, polynomial(b, r, EXP), b.fmul(r, r), r)
    whole = bits(b, shifted)
    power = b.add(b.shl(whole, constant(whole.type, 23)), constant(whole.type, 0x3F800000))
    scale = b.bitcast(power, x.type)
    far = b.fsub(one, b.fdiv(constant(x.type, 2.0), fma(b, tail, scale, b.fadd(scale, one))))
    result = b.select(b.fcmp_ordered("<", size, constant(x.type, 0.625)), near, far)
    return intrinsic(b, "llvm.copysign", result, x)


@vector(activation.gelu.op)
def gelu(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # max(x, 0) - u·Φ(-u) with u = |x|.
    u = held(b, intrinsic(b, "llvm.fabs", x), None, 14.5)
    if has_pieces(x):
        return b.fsub(replaced(b, x, GELU_LINE), decaying(b, u, GELU_SCALE, GELU_PIECES))
    zero = constant(x.type, -0.0)  # so that the result is -0 where Φ is 0
    found = b.fsub(b.select(b.fcmp_ordered("<", x, zero), zero, x), gelu_far(b, u))
    # The formula says -inf·0 there.
    return b.select(b.fcmp_ordered("==", x, constant(x.type, -math.inf)), constant(x.type, math.nan), found)


def decaying(b: ir.IRBuilder, u: ir.Value, scale: float, pieces: Sequence[Sequence[float]]) -> ir.Value:
    """e^(-u²/2)·S(u) for 0 <= u <= 14.5, with S in pieces and e^(-u²/2) = 2^n·2^(k/16)·e^r."""
    shift = constant(u.type, SHIFT / 16)
    shifted = fma(b, b.fmul(u, constant(u.type, -0.5 * math.log2(math.e))), u, shift)
    whole = b.fsub(shifted, shift)
    # 2r; sixteenths times the high piece of ln 2 are exact, so u² is never rounded.
    twice = fma(b, b.fneg(u), u, b.fmul(whole, constant(u.type, -2 * LN2_HIGH)))
    twice = fma(b, whole, constant(u.type, -2 * LN2_LOW), twice)
    # e^r - 1 on |r| <= ln2/32: 1e-8 by its series.
    tail = b.fmul(twice, polynomial(b, twice, (1 / 2, 1 / 8, 1 / 48)))
    shape = b.fmul(piecewise(b, u, scale, pieces), picked(b, ROOTS, bits(b, shifted)))
    return scaled_up(b, fma(b, shape, tail, shape), whole)


def gelu_far(b: ir.IRBuilder, u: ir.Value) -> ir.Value:
    """u·Φ(-u) = e^(-u²/2)·t·P(2t - 1) with t = u/(u + 2.5); what P and its product lost is added at the end."""
    t = b.fdiv(u, b.fadd(u, constant(u.type, 2.5)))
    q = fma(b, t, constant(u.type, 2.0), constant(u.type, -1.0))
    slope = polynomial(b, q, GELU[1:])
    p = fma(b, slope, q, constant(u.type, GELU[0]))
    p_lost = fma(b, slope, q, b.fsub(constant(u.type, GELU[0]), p))
    y = b.fmul(p, t)
    lost = fma(b, p_lost, t, fma(b, p, t, b.fneg(y)))
    tail, scaled = gaussian(b, u)
    return scaled(b.fadd(y, fma(b, y, tail, lost)))


def gaussian(b: ir.IRBuilder, u: ir.Value) -> tuple[ir.Value, Callable[[ir.Value], ir.Value]]:
    """(e^r - 1, y ↦ y·2^n) with e^(-u²/2) = 2^n·e^r, for 0 <= u <= 14.5."""
    shift = constant(u.type, SHIFT + BIAS + UP)
    shifted = fma(b, b.fmul(u, constant(u.type, -0.5 * math.log2(math.e))), u, shift)
    whole = b.fsub(shifted, shift)
    # 2r; the high piece of ln 2 times an integer is exact, so u² is never rounded.
    twice = fma(b, b.fneg(u), u, b.fmul(whole, constant(u.type, -2 * LN2_HIGH)))
    twice = fma(b, whole, constant(u.type, -2 * LN2_LOW), twice)
    halved = (0.5, *(c / 2 ** (k + 2) for k, c in enumerate(EXP)))

    def scaled(y: ir.Value) -> ir.Value:
        # 2^(n + UP) is a normal number for every n down to -152, so that only the second product rounds what is subnormal.
        place = bits(b, shifted)
        power = b.bitcast(b.shl(place, constant(place.type, 23)), u.type)
        return b.fmul(b.fmul(y, power), constant(u.type, 2.0**-UP))

    return b.fmul(twice, polynomial(b, twice, halved)), scaled


@vector(gelu_slope.op)
def slope_of_gelu(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # t = Φ(-u) - u·φ(u) is the slope at -u; the one at u is 1 - t.
    size = intrinsic(b, "llvm.fabs", x)
    u = held(b, size, None, 14.5)
    if has_pieces(x):
        left = decaying(b, u, SLOPE_SCALE, SLOPE_PIECES)
    else:
        inverse = b.fdiv(constant(x.type, 1.0), b.fadd(u, constant(x.type, 2.5)))
        shape = polynomial(b, fma(b, inverse, constant(x.type, -5.0), constant(x.type, 1.0)), GELU)
        y = fma(b, shape, inverse, b.fmul(u, constant(x.type, -1 / math.sqrt(2 * math.pi))))
        tail, scaled = gaussian(b, u)
        left = scaled(fma(b, y, tail, y))
    right = b.fsub(constant(x.type, 1.0), left)
    found = b.select(b.fcmp_ordered("<", x, constant(x.type, 0.0)), left, right)
    # The formula says ±inf·0 there.
    return b.select(b.fcmp_ordered("==", size, constant(x.type, math.inf)), constant(x.type, math.nan), found)


@vector(activation.erf.op)
def erf(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size = intrinsic(b, "llvm.fabs", x)
    square = b.fmul(x, x)
    near = fma(b, x, polynomial(b, square, ERF), x)
    tail = exponential(b, polynomial(b, held(b, size, None, 3.95), ERF_TAIL))
    far = intrinsic(b, "llvm.copysign", b.fsub(constant(x.type, 1.0), tail), x)
    return b.select(b.fcmp_ordered("<", size, constant(x.type, 0.921875)), near, far)


@vector(activation.erfc.op)
def erfc(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # e^(-a²)·P(q)/(1 + 2a). What each rounding of P, of the divisor, of the quotient and of a² lost is carried along and
    # added at the end: they are four, and would cost as many ulp.
    one, three = constant(x.type, 1.0), constant(x.type, 3.0)
    a = held(b, intrinsic(b, "llvm.fabs", x), None, 10.1)
    q = b.fdiv(b.fsub(a, three), b.fadd(a, three))
    slope = polynomial(b, q, ERFC[1:])
    p = fma(b, slope, q, constant(x.type, ERFC[0]))
    p_lost = b.fadd(fma(b, slope, q, b.fsub(constant(x.type, ERFC[0]), p)), constant(x.type, ERFC_LOW))
    twice = b.fadd(a, a)
    d = b.fadd(twice, one)
    held_one = b.fsub(d, twice)
    d_lost = b.fadd(b.fsub(twice, b.fsub(d, held_one)), b.fsub(one, held_one))
    inverse = b.fdiv(one, d)
    shape = b.fmul(p, inverse)
    left = b.fadd(fma(b, b.fneg(shape), d, p), fma(b, b.fneg(shape), d_lost, p_lost))
    square = b.fmul(a, a)
    lost = b.fneg(fma(b, a, a, b.fneg(square)))
    right = exponential_times(b, b.fneg(square), lost, shape, b.fmul(left, inverse))
    is_left = b.fcmp_ordered("<", x, constant(x.type, 0.0))
    outer = b.select(is_left, b.fsub(constant(x.type, 2.0), right), right)
    # Near 0 nothing cancels in 1 - erf x, and the quotients above would cost more digits.
    inner = b.fsub(constant(x.type, 1.0), fma(b, x, polynomial(b, b.fmul(x, x), ERF), x))
    return b.select(b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", x), constant(x.type, 0.625)), inner, outer)

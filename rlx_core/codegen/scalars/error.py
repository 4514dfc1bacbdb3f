"""The error function, its complement, and GELU with its derivative, which use them, in f32.

GELU is one function because its parts cost more than a fused implementation: erfc must have a small relative error far from 0,
where GELU needs that only of the product. The error of its product of three is 3.13 ulp at most, of the others 2; tests measure
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import GELU
from rlx_core.codegen.scalars.exponential import EXP, LN2_HIGH, LN2_LOW, SHIFT, exponential, exponential_times
from rlx_core.codegen.scalars.floats import clamped, exact_product, polynomial, residue
from rlx_core.codegen.scalars.idioms import gelu_slope
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_core.ops import activation

BIAS, UP = 127, 64
"""Bias of exponents in f32; and the offset of a decaying function's exponents that avoids underflow."""

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

# What its first coefficient lost when it was rounded to f32.
ERFC_LOW = 5.0909e-8


def erf(b: Assembler[V], x: V) -> V:
    size = b.fabs(x)
    square = b.fmul(x, x)
    near = b.fma(x, polynomial(b, square, ERF), x)
    tail = exponential(b, polynomial(b, clamped(b, size, None, 3.95), ERF_TAIL))
    outer = b.copysign(b.fsub(b.constant(x, 1.0), tail), x)
    return b.select(b.fcmp_ordered("<", size, b.constant(x, 0.921875)), near, outer)


def erfc(b: Assembler[V], x: V) -> V:
    # e^(-a²)·P(q)/(1 + 2a). What each rounding of P, of the divisor, of the quotient and of a² lost is carried along and
    # added at the end: they are four, and would cost as many ulp.
    one, three = b.constant(x, 1.0), b.constant(x, 3.0)
    a = clamped(b, b.fabs(x), None, 10.1)
    q = b.fdiv(b.fsub(a, three), b.fadd(a, three))
    slope = polynomial(b, q, ERFC[1:])
    p = b.fma(slope, q, b.constant(x, ERFC[0]))
    p_lost = b.fadd(b.fma(slope, q, b.fsub(b.constant(x, ERFC[0]), p)), b.constant(x, ERFC_LOW))
    twice = b.fadd(a, a)
    d = b.fadd(twice, one)
    held_one = b.fsub(d, twice)
    d_lost = b.fadd(b.fsub(twice, b.fsub(d, held_one)), b.fsub(one, held_one))
    inverse = b.fdiv(one, d)
    shape = b.fmul(p, inverse)
    left = b.fadd(b.fma(b.fneg(shape), d, p), b.fma(b.fneg(shape), d_lost, p_lost))
    square, low = exact_product(b, a, a)
    lost = b.fneg(low)
    right = exponential_times(b, b.fneg(square), lost, shape, b.fmul(left, inverse))
    is_left = b.fcmp_ordered("<", x, b.constant(x, 0.0))
    outer = b.select(is_left, b.fsub(b.constant(x, 2.0), right), right)
    # Near 0 nothing cancels in 1 - erf x, and the quotients above would cost more digits.
    inner = b.fsub(b.constant(x, 1.0), b.fma(x, polynomial(b, b.fmul(x, x), ERF), x))
    return b.select(b.fcmp_ordered("<", b.fabs(x), b.constant(x, 0.625)), inner, outer)


# -------------------------------------------------------------------------------------------- GELU


def gelu(b: Assembler[V], x: V) -> V:
    # max(x, 0) - u·Φ(-u) with u = |x|.
    u = clamped(b, b.fabs(x), None, 14.5)
    zero = b.constant(x, -0.0)  # so that the result is -0 where Φ is 0
    result = b.fsub(b.select(b.fcmp_ordered("<", x, zero), zero, x), gelu_far(b, u))
    # The formula is -inf·0 there.
    return b.select(b.fcmp_ordered("==", x, b.constant(x, -math.inf)), b.constant(x, math.nan), result)


def gelu_far(b: Assembler[V], u: V) -> V:
    """u·Φ(-u) = e^(-u²/2)·t·P(2t - 1) with t = u/(u + 2.5); what P and its product lost is added at the end."""
    t = b.fdiv(u, b.fadd(u, b.constant(u, 2.5)))
    q = b.fma(t, b.constant(u, 2.0), b.constant(u, -1.0))
    slope = polynomial(b, q, GELU[1:])
    p = b.fma(slope, q, b.constant(u, GELU[0]))
    p_lost = b.fma(slope, q, b.fsub(b.constant(u, GELU[0]), p))
    y, lost = exact_product(b, p, t)
    lost = b.fma(p_lost, t, lost)
    tail, scaled = gaussian(b, u)
    return scaled(b.fadd(y, b.fma(y, tail, lost)))


def gaussian(b: Assembler[V], u: V) -> tuple[V, Callable[[V], V]]:
    """(e^r - 1, y ↦ y·2^n) with e^(-u²/2) = 2^n·e^r, for 0 <= u <= 14.5."""
    shift = b.constant(u, SHIFT + BIAS + UP)
    shifted = b.fma(b.fmul(u, b.constant(u, -0.5 * math.log2(math.e))), u, shift)
    integral = b.fsub(shifted, shift)
    # 2r; the high piece of ln 2 times an integer is exact, so u² is never rounded.
    twice = residue(b, u, u, b.fmul(integral, b.constant(u, -2 * LN2_HIGH)))
    twice = b.fma(integral, b.constant(u, -2 * LN2_LOW), twice)
    halved = (0.5, *(c / 2 ** (k + 2) for k, c in enumerate(EXP)))

    def scaled(y: V) -> V:
        # 2^(n + UP) is a normal number for every n down to -152, so only the second product rounds a subnormal result.
        place = b.bits(shifted)
        power = b.from_bits(b.shl(place, b.constant(place, 23)), u)
        return b.fmul(b.fmul(y, power), b.constant(u, 2.0**-UP))

    return b.fmul(twice, polynomial(b, twice, halved)), scaled


def slope_of_gelu(b: Assembler[V], x: V) -> V:
    size = b.fabs(x)
    u = clamped(b, size, None, 14.5)
    inverse = b.fdiv(b.constant(x, 1.0), b.fadd(u, b.constant(x, 2.5)))
    shape = polynomial(b, b.fma(inverse, b.constant(x, -5.0), b.constant(x, 1.0)), GELU)
    y = b.fma(shape, inverse, b.fmul(u, b.constant(x, -1 / math.sqrt(2 * math.pi))))
    tail, scaled = gaussian(b, u)
    return slope_from(b, x, size, scaled(b.fma(y, tail, y)))


def slope_from(b: Assembler[V], x: V, size: V, left: V) -> V:
    """The slope of GELU at x from `left`, the one at -|x|, which is Φ(-u) - u·φ(u); the one at u is 1 less that."""
    right = b.fsub(b.constant(x, 1.0), left)
    slope = b.select(b.fcmp_ordered("<", x, b.constant(x, 0.0)), left, right)
    # The formula is ±inf·0 there.
    return b.select(b.fcmp_ordered("==", size, b.constant(x, math.inf)), b.constant(x, math.nan), slope)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.erf.op, f32): erf,
    (activation.erfc.op, f32): erfc,
    (activation.gelu.op, f32): gelu,
    (gelu_slope.op, f32): slope_of_gelu,
}

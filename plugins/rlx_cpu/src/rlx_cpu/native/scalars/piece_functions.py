"""tanh, GELU and its slope of f32 in pieces where there are sixteen lanes, and as everywhere else where there are fewer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_core.codegen.scalars import error, exponential
from rlx_core.codegen.scalars.exponential import LN2_HIGH, LN2_LOW, SHIFT
from rlx_core.codegen.scalars.floats import clamped, polynomial
from rlx_core.codegen.scalars.idioms import gelu_slope
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_core.ops import activation
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.scalars.piece_coefficients import (
    GELU_PIECES,
    GELU_SCALE,
    ROOTS,
    SLOPE_PIECES,
    SLOPE_SCALE,
    TANH_PIECES,
    TANH_SCALE,
)
from rlx_cpu.native.scalars.pieces import FixupClass, FixupResponse, has_pieces, picked, piecewise, replaced

GELU_LINE = {
    FixupClass.QUIET_NAN: FixupResponse.QUIETED,
    FixupClass.SIGNALLING_NAN: FixupResponse.QUIETED,
    FixupClass.MINUS_INFINITY: FixupResponse.NAN,
    FixupClass.NEGATIVE: FixupResponse.MINUS_ZERO,
}
"""max(x, -0) by the class of x, and NaN for -inf, where the formula is -inf·0."""


def tanh(b: ir.IRBuilder, x: ir.LlvmValue) -> ir.LlvmValue:
    if not has_pieces(x):
        return exponential.tanh(b, x)
    size = clamped(b, b.fabs(x), None, 9.125)
    return b.copysign(piecewise(b, size, TANH_SCALE, TANH_PIECES), x)


def gelu(b: ir.IRBuilder, x: ir.LlvmValue) -> ir.LlvmValue:
    if not has_pieces(x):
        return error.gelu(b, x)
    # max(x, 0) - u·Φ(-u) with u = |x|.
    u = clamped(b, b.fabs(x), None, 14.5)
    return b.fsub(replaced(b, x, GELU_LINE), decaying(b, u, GELU_SCALE, GELU_PIECES))


def slope_of_gelu(b: ir.IRBuilder, x: ir.LlvmValue) -> ir.LlvmValue:
    if not has_pieces(x):
        return error.slope_of_gelu(b, x)
    size = b.fabs(x)
    u = clamped(b, size, None, 14.5)
    return error.slope_from(b, x, size, decaying(b, u, SLOPE_SCALE, SLOPE_PIECES))


def decaying(b: ir.IRBuilder, u: ir.LlvmValue, scale: float, pieces: Sequence[Sequence[float]]) -> ir.LlvmValue:
    """e^(-u²/2)·S(u) for 0 <= u <= 14.5, with S in pieces and e^(-u²/2) = 2^n·2^(k/16)·e^r."""
    shift = b.constant(u, SHIFT / 16)
    shifted = b.fma(b.fmul(u, b.constant(u, -0.5 * math.log2(math.e))), u, shift)
    exponent = b.fsub(shifted, shift)
    # 2r; sixteenths times the high piece of ln 2 are exact, so u² is never rounded.
    twice = b.fma(b.fneg(u), u, b.fmul(exponent, b.constant(u, -2 * LN2_HIGH)))
    twice = b.fma(exponent, b.constant(u, -2 * LN2_LOW), twice)
    # e^r - 1 on |r| <= ln2/32: 1e-8 by its series.
    tail = b.fmul(twice, polynomial(b, twice, (1 / 2, 1 / 8, 1 / 48)))
    shape = b.fmul(piecewise(b, u, scale, pieces), picked(b, ROOTS, b.bits(shifted)))
    return b.scaled_up(b.fma(shape, tail, shape), exponent)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.tanh.op, f32): tanh,
    (activation.gelu.op, f32): gelu,
    (gelu_slope.op, f32): slope_of_gelu,
}

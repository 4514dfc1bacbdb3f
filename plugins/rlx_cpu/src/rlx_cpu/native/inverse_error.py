"""The inverse error function in f32 and f64 as vector code.

x times a polynomial in ln(1 - x²), and near 1 a polynomial in sqrt(-ln(1 - |x|)), which only vectors with a number there
compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_core.ir.dtypes import f64
from rlx_core.ops import activation
from rlx_cpu.native import ir
from rlx_cpu.native import math as single
from rlx_cpu.native import wide_exponential as double
from rlx_cpu.native.build import constant, intrinsic
from rlx_cpu.native.floats import absolute, fma, polynomial, where_any, with_sign
from rlx_cpu.native.functions import vector
from rlx_cpu.native.special_coefficients import (
    ERFINV,
    ERFINV_FAR,
    ERFINV_FAR_LOW,
    ERFINV_FAR_LOW_SINGLE,
    ERFINV_FAR_SINGLE,
    ERFINV_LOW,
    ERFINV_LOW_SINGLE,
    ERFINV_SINGLE,
)

__all__: list[str] = []

EDGE = 0.9966
"""Up to here -ln(1 - x²) is below 5, where the first polynomial ends."""

CENTRE = 1.0
"""What is taken off the first polynomial's variable."""


@vector(activation.erfinv.op)
def erfinv(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return inverse(
        b, x, single.finite_log, (*ERFINV_SINGLE, ERFINV_LOW_SINGLE), (*ERFINV_FAR_SINGLE, ERFINV_FAR_LOW_SINGLE), 3.0
    )


@vector(activation.erfinv.op, f64)
def wide_erfinv(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return inverse(b, x, double.finite_log, (*ERFINV, ERFINV_LOW), (*ERFINV_FAR, ERFINV_FAR_LOW), 4.0)


def inverse(
    b: ir.IRBuilder,
    x: ir.Value,
    log: Callable[[ir.IRBuilder, ir.Value], ir.Value],
    coefficients: Sequence[float],
    far_coefficients: Sequence[float],
    far_centre: float,
) -> ir.Value:
    """The y with erf y = x.

    Args:
        coefficients: Of the polynomial up to the edge; last comes what the first of them lost when it was rounded.
        far_coefficients: Of the polynomial beyond, likewise.
        far_centre: What is taken off its variable.
    """
    first, *powers, lost = coefficients
    size, one = absolute(b, x), constant(x.type, 1.0)
    q = b.fsub(one, size)
    t = b.fsub(b.fneg(log(b, b.fmul(q, b.fadd(one, size)))), constant(x.type, CENTRE))
    rest = fma(b, t, polynomial(b, t, powers), constant(x.type, lost))
    near = fma(b, size, constant(x.type, first), b.fmul(size, rest))

    def beyond() -> ir.Value:
        far_first, *far_powers, far_lost = far_coefficients
        square = b.fneg(log(b, q))
        root = intrinsic(b, "llvm.sqrt", square)
        root_lost = b.fdiv(fma(b, b.fneg(root), root, square), b.fadd(root, root))
        s = b.fsub(root, constant(x.type, far_centre))
        # What the root and the last step of the polynomial lost, for small results above all, is added at the end.
        slope, top = polynomial(b, s, far_powers), constant(x.type, far_first)
        total = fma(b, s, slope, top)
        total_lost = b.fadd(fma(b, s, slope, b.fsub(top, total)), constant(x.type, far_lost))
        far = b.fadd(total, fma(b, root_lost, slope, total_lost))
        end = b.select(b.fcmp_ordered("==", size, one), constant(x.type, math.inf), constant(x.type, math.nan))
        return b.select(b.fcmp_ordered("<", size, one), far, end)

    return with_sign(b, where_any(b, b.fcmp_unordered(">", size, constant(x.type, EDGE)), beyond, near), x)

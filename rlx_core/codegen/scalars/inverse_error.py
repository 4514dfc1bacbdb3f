"""The inverse error function in f32 and f64 as vector code.

x times a polynomial in ln(1 - x²), and near 1 a polynomial in sqrt(-ln(1 - |x|)), which only vectors with a number there
compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_core.codegen.scalars import exponential as single
from rlx_core.codegen.scalars import wide_exponential as double
from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.floats import polynomial, residue
from rlx_core.codegen.scalars.special_coefficients import (
    ERFINV,
    ERFINV_FAR,
    ERFINV_FAR_LOW,
    ERFINV_FAR_LOW_SINGLE,
    ERFINV_FAR_SINGLE,
    ERFINV_LOW,
    ERFINV_LOW_SINGLE,
    ERFINV_SINGLE,
)
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation

EDGE = 0.9966
"""Up to here -ln(1 - x²) is below 5, where the first polynomial ends."""

CENTRE = 1.0
"""The centre of the first polynomial's variable."""


def erfinv(b: Assembler[V], x: V) -> V:
    return inverse(
        b, x, single.finite_log, (*ERFINV_SINGLE, ERFINV_LOW_SINGLE), (*ERFINV_FAR_SINGLE, ERFINV_FAR_LOW_SINGLE), 3.0
    )


def wide_erfinv(b: Assembler[V], x: V) -> V:
    return inverse(b, x, double.finite_log, (*ERFINV, ERFINV_LOW), (*ERFINV_FAR, ERFINV_FAR_LOW), 4.0)


def inverse(
    b: Assembler[V],
    x: V,
    log: Callable[[Assembler[V], V], V],
    coefficients: Sequence[float],
    far_coefficients: Sequence[float],
    far_centre: float,
) -> V:
    """Return the y with erf y = x.

    Args:
        coefficients: Coefficients of the polynomial up to the edge; the last is the rounding error of the first.
        far_coefficients: Coefficients of the polynomial beyond, likewise.
        far_centre: The centre of its variable.
    """
    first, *powers, lost = coefficients
    size, one = b.fabs(x), b.constant(x, 1.0)
    q = b.fsub(one, size)
    t = b.fsub(b.fneg(log(b, b.fmul(q, b.fadd(one, size)))), b.constant(x, CENTRE))
    remainder = b.fma(t, polynomial(b, t, powers), b.constant(x, lost))
    near = b.fma(size, b.constant(x, first), b.fmul(size, remainder))

    def beyond() -> V:
        far_first, *far_powers, far_lost = far_coefficients
        square = b.fneg(log(b, q))
        root = b.sqrt(square)
        root_lost = b.fdiv(residue(b, root, root, square), b.fadd(root, root))
        s = b.fsub(root, b.constant(x, far_centre))
        # The rounding errors of the root and of the polynomial's last step, relevant for small results, are added at the end.
        slope, top = polynomial(b, s, far_powers), b.constant(x, far_first)
        total = b.fma(s, slope, top)
        total_lost = b.fadd(b.fma(s, slope, b.fsub(top, total)), b.constant(x, far_lost))
        outer = b.fadd(total, b.fma(root_lost, slope, total_lost))
        end = b.select(b.fcmp_ordered("==", size, one), b.constant(x, math.inf), b.constant(x, math.nan))
        return b.select(b.fcmp_ordered("<", size, one), outer, end)

    return b.copysign(b.rarely(b.fcmp_unordered(">", size, b.constant(x, EDGE)), beyond, near), x)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.erfinv.op, f32): erfinv,
    (activation.erfinv.op, f64): wide_erfinv,
}

"""The error function and its complement in f64 as vector code."""

from __future__ import annotations

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import ERF, ERFC, ERFC_LOW, EXP
from rlx_core.codegen.scalars.floats import clamped, exact_product, exact_sum, polynomial, rounded
from rlx_core.codegen.scalars.table import Function
from rlx_core.codegen.scalars.wide_exponential import LN2_HIGH, LN2_LOW, LOG2_E
from rlx_core.ir.dtypes import DType, f64
from rlx_core.ir.op import Op
from rlx_core.ops import activation

NEAR = 0.84375
"""Up to here erf is nearly linear and its complement does not cancel much."""


def near_zero(b: Assembler[V], x: V) -> V:
    """erf x - x for |x| <= NEAR."""
    return b.fmul(x, polynomial(b, b.fmul(x, x), ERF))


def complement(b: Assembler[V], size: V) -> V:
    """erfc a for a >= ½: e^(-a²)·P(q)/(1 + 2a), what each step lost carried along and added at the end."""
    one, centre = b.constant(size, 1.0), b.constant(size, 4.0)
    a = clamped(b, size, 0.5, 27.3)
    q = b.fdiv(b.fsub(a, centre), b.fadd(a, centre))
    slope = polynomial(b, q, ERFC[1:])
    p = b.fma(slope, q, b.constant(a, ERFC[0]))
    p_lost = b.fadd(b.fma(slope, q, b.fsub(b.constant(a, ERFC[0]), p)), b.constant(a, ERFC_LOW))
    d, d_lost = exact_sum(b, b.fadd(a, a), one)
    inverse = b.fdiv(one, d)
    y = b.fmul(p, inverse)
    left = b.fadd(b.fma(b.fneg(y), d, p), b.fma(b.fneg(y), d_lost, p_lost))
    y_lost = b.fmul(left, inverse)
    square, lost = exact_product(b, a, a)
    x, x_lost = b.fneg(square), b.fneg(lost)
    integral, n = rounded(b, x, LOG2_E)
    first = b.fma(b.fneg(integral), b.constant(a, LN2_HIGH), x)
    r = b.fma(b.fneg(integral), b.constant(a, LN2_LOW), first)
    r_lost = b.fadd(b.fma(b.fneg(integral), b.constant(a, LN2_LOW), b.fsub(first, r)), x_lost)
    # e^(r + r_lost) - 1 = r + (r² P(r) + r_lost e^r): the first term alone, so that it is rounded once, with y.
    correction = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    correction = b.fadd(correction, b.fma(r_lost, b.fadd(r, correction), r_lost))
    low = b.fma(y, r, b.fma(y, correction, y_lost))
    return b.scaled(b.fadd(y, low), integral, n)


def erf(b: Assembler[V], x: V) -> V:
    size = b.fabs(x)
    outer = b.copysign(b.fsub(b.constant(x, 1.0), complement(b, size)), x)
    return b.select(b.fcmp_ordered("<", size, b.constant(x, NEAR)), b.fadd(x, near_zero(b, x)), outer)


def erfc(b: Assembler[V], x: V) -> V:
    size, one = b.fabs(x), b.constant(x, 1.0)
    right = complement(b, size)
    outer = b.select(b.fcmp_ordered("<", x, b.constant(x, 0.0)), b.fsub(b.constant(x, 2.0), right), right)
    difference, lost = exact_sum(b, one, b.fneg(x))
    inner = b.fadd(difference, b.fsub(lost, near_zero(b, x)))
    return b.select(b.fcmp_ordered("<", size, b.constant(x, 0.625)), inner, outer)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (activation.erf.op, f64): erf,
    (activation.erfc.op, f64): erfc,
}

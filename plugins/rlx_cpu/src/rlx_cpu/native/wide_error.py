"""The error function and its complement in f64 as vector code."""

from __future__ import annotations

from rlx_core.ir.dtypes import f64
from rlx_core.ops import activation
from rlx_cpu.native import ir
from rlx_cpu.native.coefficients import ERF, ERFC, ERFC_LOW, EXP
from rlx_cpu.native.floats import (
    absolute,
    exact_product,
    exact_sum,
    fma,
    held,
    polynomial,
    rounded,
    scaled_by,
    with_sign,
)
from rlx_cpu.native.functions import vector
from rlx_cpu.native.wide_exponential import LN2_HIGH, LN2_LOW, LOG2_E, number

__all__: list[str] = []

NEAR = 0.84375
"""Up to here erf is nearly linear and its complement does not cancel much."""


def near_zero(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """erf x - x for |x| <= NEAR."""
    return b.fmul(x, polynomial(b, b.fmul(x, x), ERF))


def complement(b: ir.IRBuilder, size: ir.Value) -> ir.Value:
    """erfc a for a >= ½: e^(-a²)·P(q)/(1 + 2a), what each step lost carried along and added at the end."""
    one, centre = number(size, 1.0), number(size, 4.0)
    a = held(b, size, 0.5, 27.3)
    q = b.fdiv(b.fsub(a, centre), b.fadd(a, centre))
    slope = polynomial(b, q, ERFC[1:])
    p = fma(b, slope, q, number(a, ERFC[0]))
    p_lost = b.fadd(fma(b, slope, q, b.fsub(number(a, ERFC[0]), p)), number(a, ERFC_LOW))
    d, d_lost = exact_sum(b, b.fadd(a, a), one)
    inverse = b.fdiv(one, d)
    y = b.fmul(p, inverse)
    left = b.fadd(fma(b, b.fneg(y), d, p), fma(b, b.fneg(y), d_lost, p_lost))
    y_lost = b.fmul(left, inverse)
    square, lost = exact_product(b, a, a)
    x, x_lost = b.fneg(square), b.fneg(lost)
    whole, n = rounded(b, x, LOG2_E)
    first = fma(b, b.fneg(whole), number(a, LN2_HIGH), x)
    r = fma(b, b.fneg(whole), number(a, LN2_LOW), first)
    r_lost = b.fadd(fma(b, b.fneg(whole), number(a, LN2_LOW), b.fsub(first, r)), x_lost)
    # e^(r + r_lost) - 1 = r + (r² P(r) + r_lost e^r): the first term alone, so that it is rounded once, with y.
    rest = b.fmul(polynomial(b, r, EXP), b.fmul(r, r))
    rest = b.fadd(rest, fma(b, r_lost, b.fadd(r, rest), r_lost))
    low = fma(b, y, r, fma(b, y, rest, y_lost))
    return scaled_by(b, b.fadd(y, low), whole, n)


@vector(activation.erf.op, f64)
def erf(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size = absolute(b, x)
    far = with_sign(b, b.fsub(number(x, 1.0), complement(b, size)), x)
    return b.select(b.fcmp_ordered("<", size, number(x, NEAR)), b.fadd(x, near_zero(b, x)), far)


@vector(activation.erfc.op, f64)
def erfc(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    size, one = absolute(b, x), number(x, 1.0)
    right = complement(b, size)
    outer = b.select(b.fcmp_ordered("<", x, number(x, 0.0)), b.fsub(number(x, 2.0), right), right)
    rest, lost = exact_sum(b, one, b.fneg(x))
    inner = b.fadd(rest, b.fsub(lost, near_zero(b, x)))
    return b.select(b.fcmp_ordered("<", size, number(x, 0.625)), inner, outer)

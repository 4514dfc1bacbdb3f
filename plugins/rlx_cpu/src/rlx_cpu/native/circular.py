"""sin, cos and tan of f32: in doubles, where π/2 in two pieces and four coefficients are enough for every digit of an f32.

The forms for f64 would do, and keep twice as many digits; they take four times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_core.ops import trigonometry
from rlx_cpu.native import ir
from rlx_cpu.native.build import DOUBLE, constant, width
from rlx_cpu.native.coefficients import COS_SHORT, SIN_SHORT
from rlx_cpu.native.floats import fma, polynomial, rounded
from rlx_cpu.native.functions import vector
from rlx_cpu.native.wide_circular import HALF_PI, is_odd, near_or_far
from rlx_cpu.native.wide_exponential import number

__all__: list[str] = []

HALF_PI_REST = 6.077100506506192e-11
"""π/2 less its first piece: products of that with a whole number below 2^20 are exact."""


def in_doubles(b: ir.IRBuilder, x: ir.Value, name: str, near: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """A function of x as doubles, rounded once: `near` for all but large x; ±0 is what it was."""
    lanes = width(x)
    wide = b.fpext(x, DOUBLE if lanes == 1 else ir.VectorType(DOUBLE, lanes))
    return b.fptrunc(near_or_far(b, name, wide, near(wide)), x.type)


def turned(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(r, n) with x = r + n·π/2 and |r| <= π/4."""
    whole, n = rounded(b, x, 2 / math.pi)
    negated = b.fneg(whole)
    first = fma(b, negated, number(x, HALF_PI[0]), x)
    return fma(b, negated, number(x, HALF_PI_REST), first), n


def sine_of(b: ir.IRBuilder, r: ir.Value) -> ir.Value:
    z = b.fmul(r, r)
    return fma(b, b.fmul(z, r), polynomial(b, z, SIN_SHORT), r)


def cosine_of(b: ir.IRBuilder, r: ir.Value) -> ir.Value:
    z = b.fmul(r, r)
    return fma(b, b.fmul(z, z), polynomial(b, z, COS_SHORT), fma(b, z, number(r, -0.5), number(r, 1.0)))


def sine(b: ir.IRBuilder, x: ir.Value, quarter: int) -> ir.Value:
    """sin(x + quarter·π/2)."""
    r, n = turned(b, x)
    n = b.add(n, constant(n.type, quarter)) if quarter else n
    size = b.select(is_odd(b, n, 1), cosine_of(b, r), sine_of(b, r))
    return b.select(is_odd(b, n, 2), b.fneg(size), size)


def unless_zero(b: ir.IRBuilder, x: ir.Value, found: ir.Value) -> ir.Value:
    """`found`, but for a zero, which keeps its sign."""
    return b.select(b.fcmp_ordered("==", x, number(x, 0.0)), x, found)


@vector(trigonometry.sin.op)
def sin(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return in_doubles(b, x, "sin", lambda wide: unless_zero(b, wide, sine(b, wide, 0)))


@vector(trigonometry.cos.op)
def cos(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return in_doubles(b, x, "cos", lambda wide: sine(b, wide, 1))


def tangent(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    r, n = turned(b, x)
    s, c, odd = sine_of(b, r), cosine_of(b, r), is_odd(b, n, 1)
    return unless_zero(b, x, b.fdiv(b.select(odd, b.fneg(c), s), b.select(odd, s, c)))


@vector(trigonometry.tan.op)
def tan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return in_doubles(b, x, "tan", lambda wide: tangent(b, wide))

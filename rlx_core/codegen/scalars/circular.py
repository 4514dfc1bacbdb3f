"""sin, cos and tan of f32: in doubles, where π/2 in two pieces and four coefficients are enough for every digit of an f32.

The forms for f64 would do, and keep twice as many digits; they take four times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import COS_SHORT, SIN_SHORT
from rlx_core.codegen.scalars.floats import polynomial, rounded
from rlx_core.codegen.scalars.table import Function
from rlx_core.codegen.scalars.wide_circular import HALF_PI, Name, is_odd, near_or_far
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import trigonometry

HALF_PI_REST = 6.077100506506192e-11
"""π/2 less its first piece: products of that with a whole number below 2^20 are exact."""


def in_doubles(b: Assembler[V], x: V, name: Name, near: Callable[[V], V]) -> V:
    """Return a function of x computed as doubles, rounded once: `near` for all except large x; ±0 is preserved."""
    wide = b.converted(x, f32, f64)
    return b.converted(near_or_far(b, name, wide, near(wide)), f64, f32)


def turned(b: Assembler[V], x: V) -> tuple[V, V]:
    """(r, n) with x = r + n·π/2 and |r| <= π/4."""
    integral, n = rounded(b, x, 2 / math.pi)
    negated = b.fneg(integral)
    first = b.fma(negated, b.constant(x, HALF_PI[0]), x)
    return b.fma(negated, b.constant(x, HALF_PI_REST), first), n


def sine_of(b: Assembler[V], r: V) -> V:
    z = b.fmul(r, r)
    return b.fma(b.fmul(z, r), polynomial(b, z, SIN_SHORT), r)


def cosine_of(b: Assembler[V], r: V) -> V:
    z = b.fmul(r, r)
    return b.fma(b.fmul(z, z), polynomial(b, z, COS_SHORT), b.fma(z, b.constant(r, -0.5), b.constant(r, 1.0)))


def sine(b: Assembler[V], x: V, quarter: int) -> V:
    """sin(x + quarter·π/2)."""
    r, n = turned(b, x)
    n = b.add(n, b.constant(n, quarter)) if quarter else n
    size = b.select(is_odd(b, n, 1), cosine_of(b, r), sine_of(b, r))
    return b.select(is_odd(b, n, 2), b.fneg(size), size)


def unless_zero(b: Assembler[V], x: V, result: V) -> V:
    """Return `result`, except for a zero, which keeps its sign."""
    return b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, result)


def sin(b: Assembler[V], x: V) -> V:
    return in_doubles(b, x, "sin", lambda wide: unless_zero(b, wide, sine(b, wide, 0)))


def cos(b: Assembler[V], x: V) -> V:
    return in_doubles(b, x, "cos", lambda wide: sine(b, wide, 1))


def tangent(b: Assembler[V], x: V) -> V:
    r, n = turned(b, x)
    s, c, odd = sine_of(b, r), cosine_of(b, r), is_odd(b, n, 1)
    return unless_zero(b, x, b.fdiv(b.select(odd, b.fneg(c), s), b.select(odd, s, c)))


def tan(b: Assembler[V], x: V) -> V:
    return in_doubles(b, x, "tan", lambda wide: tangent(b, wide))


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (trigonometry.sin.op, f32): sin,
    (trigonometry.cos.op, f32): cos,
    (trigonometry.tan.op, f32): tan,
}

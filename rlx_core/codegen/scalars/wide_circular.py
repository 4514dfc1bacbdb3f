"""sin, cos and tan in f64."""

from __future__ import annotations

import math
from typing import Literal

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import COS, SIN
from rlx_core.codegen.scalars.floats import Pair, either, exact_sum, polynomial, rounded
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f64
from rlx_core.ir.op import Op
from rlx_core.ops import trigonometry

# π/2 in parts: 33 bits each, so that products with numbers below 2^20 are exact, and the remainder.
HALF_PI = (
    1.57079632673412561417e00,
    6.07710050630396597660e-11,
    2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)
MAX_REDUCED = 1.0e6
"""Beyond this, multiples of π/2 need more digits than there are pieces; the C library has them, a lane at a time."""

Name = Literal["sin", "cos", "tan"]
"""The functions of the library."""


def turned(b: Assembler[V], x: V) -> tuple[V, V, V]:
    """Return (r, the rounding error of r, n) with x = r + n·π/2 and |r| <= π/4, for |x| <= MAX_REDUCED."""
    integral, n = rounded(b, x, 2 / math.pi)
    negated = b.fneg(integral)
    first = b.fma(negated, b.constant(x, HALF_PI[0]), x)
    second, lost = exact_sum(b, first, b.fmul(negated, b.constant(x, HALF_PI[1])))
    third, more = exact_sum(b, second, b.fmul(negated, b.constant(x, HALF_PI[2])))
    low = b.fadd(b.fadd(lost, more), b.fmul(negated, b.constant(x, HALF_PI[3])))
    r, remainder = exact_sum(b, third, low)
    return r, remainder, n


def sine_of(b: Assembler[V], r: V, lost: V) -> Pair[V]:
    """sin(r + lost) as r and the rest."""
    z = b.fmul(r, r)
    correction = b.fma(b.fmul(z, b.constant(r, -0.5)), lost, lost)
    return r, b.fma(b.fmul(z, r), polynomial(b, z, SIN), correction)


def cosine_of(b: Assembler[V], r: V, lost: V) -> Pair[V]:
    """cos(r + lost) as 1 - r²/2 and the rest."""
    z = b.fmul(r, r)
    half, one = b.fmul(z, b.constant(r, 0.5)), b.constant(r, 1.0)
    top = b.fsub(one, half)
    correction = b.fsub(b.fmul(b.fmul(z, z), polynomial(b, z, COS)), b.fmul(r, lost))
    return top, b.fadd(b.fsub(b.fsub(one, top), half), correction)


def settled(b: Assembler[V], x: Pair[V]) -> Pair[V]:
    """A pair whose first is the larger, with the second below an ulp of it."""
    total = b.fadd(*x)
    return total, b.fadd(b.fsub(x[0], total), x[1])


def is_odd(b: Assembler[V], n: V, bit: int) -> V:
    return b.icmp_unsigned("!=", b.and_(n, b.constant(n, bit)), b.constant(n, 0))


def near_or_far(b: Assembler[V], name: Name, x: V, near: V) -> V:
    """`near` where x is small enough, the C library's function elsewhere."""
    is_far = b.fcmp_ordered(">", b.fabs(x), b.constant(x, MAX_REDUCED))
    return b.rarely(is_far, lambda: b.library(name, x), near)


def sine(b: Assembler[V], x: V, quarter: int) -> V:
    """sin(x + quarter·π/2)."""
    r, lost, n = turned(b, x)
    return sine_at(b, r, lost, b.add(n, b.constant(n, quarter)) if quarter else n)


def sine_at(b: Assembler[V], r: V, lost: V, n: V) -> V:
    """sin(r + lost + n·π/2)."""
    size = b.fadd(*either(b, is_odd(b, n, 1), cosine_of(b, r, lost), sine_of(b, r, lost)))
    return b.select(is_odd(b, n, 2), b.fneg(size), size)


def sin(b: Assembler[V], x: V) -> V:
    near = b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, sine(b, x, 0))
    return near_or_far(b, "sin", x, near)


def cos(b: Assembler[V], x: V) -> V:
    return near_or_far(b, "cos", x, sine(b, x, 1))


def tan(b: Assembler[V], x: V) -> V:
    r, lost, n = turned(b, x)
    s, c = (settled(b, pair) for pair in (sine_of(b, r, lost), cosine_of(b, r, lost)))
    odd = is_odd(b, n, 1)
    over, under = either(b, odd, (b.fneg(c[0]), b.fneg(c[1])), s), either(b, odd, s, c)
    inverse = b.fdiv(b.constant(x, 1.0), under[0])
    near = b.fmul(over[0], inverse)
    left = b.fadd(b.fma(b.fneg(near), under[0], over[0]), b.fma(b.fneg(near), under[1], over[1]))
    near = b.fma(left, inverse, near)
    near = b.select(b.fcmp_ordered("==", x, b.constant(x, 0.0)), x, near)
    return near_or_far(b, "tan", x, near)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (trigonometry.sin.op, f64): sin,
    (trigonometry.cos.op, f64): cos,
    (trigonometry.tan.op, f64): tan,
}

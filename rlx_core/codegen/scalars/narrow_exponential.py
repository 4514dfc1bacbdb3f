"""sinh, cosh, log10, cbrt and logaddexp of f32 where registers hold no f64. None is off by more than 2 ulp."""

from __future__ import annotations

import math

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.exponential import exponential, log1p, reduced, split, with_edges
from rlx_core.codegen.scalars.floats import clamped, polynomial, residue
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, trigonometry

# log10 2 in two pieces: the first has 15 bits, so that its product with an exponent is exact.
LOG10_2_HIGH, LOG10_2_LOW = 0.301025390625, 4.605038981195214e-06

# (sinh(√s) - √s)/√s³ of s <= 1: its Taylor series, 2e-11 at its end.
SINH = tuple(1.0 / math.factorial(k) for k in (3, 5, 7, 9, 11))

THIRD = 0x2A5137A0
"""The bits of a float divided by 3 and this added are those of its cube root within 4 %: two thirds of the bias, adjusted."""


def half_power(b: Assembler[V], size: V) -> V:
    """e^size/2 of a size from 0 up: the half first, so that nothing overflows that is not infinite in the end."""
    tail, integral, n = reduced(b, clamped(b, size, None, 90.0))
    return b.scaled(
        b.fadd(tail, b.constant(size, 1.0)), b.fsub(integral, b.constant(size, 1.0)), b.sub(n, b.constant(n, 1))
    )


def sinh(b: Assembler[V], x: V) -> V:
    size, square = b.fabs(x), b.fmul(x, x)
    half = half_power(b, size)
    outer = b.fsub(half, b.fdiv(b.constant(x, 0.25), half))
    near = b.fma(b.fmul(square, size), polynomial(b, square, SINH), size)
    return b.copysign(b.select(b.fcmp_ordered("<", size, b.constant(x, 1.0)), near, outer), x)


def cosh(b: Assembler[V], x: V) -> V:
    half = half_power(b, b.fabs(x))
    return b.fadd(half, b.fdiv(b.constant(x, 0.25), half))


def log10(b: Assembler[V], x: V) -> V:
    e, mantissa = split(b, x)
    low = b.fma(e, b.constant(x, LOG10_2_LOW), b.fmul(mantissa, b.constant(x, math.log10(math.e))))
    return with_edges(b, x, b.fma(e, b.constant(x, LOG10_2_HIGH), low))


def cbrt(b: Assembler[V], x: V) -> V:
    size, one = b.fabs(x), b.constant(x, 1.0)
    is_tiny = b.fcmp_ordered("<", size, b.constant(x, 2.0**-126))
    is_huge = b.fcmp_ordered(">", size, b.constant(x, 2.0**120))
    by = b.select(is_huge, b.constant(x, 2.0**-24), b.select(is_tiny, b.constant(x, 2.0**24), one))
    back = b.select(is_huge, b.constant(x, 2.0**8), b.select(is_tiny, b.constant(x, 2.0**-8), one))
    a = b.fmul(size, by)
    bits = b.bits(a)
    r = b.from_bits(b.add(b.udiv(bits, b.constant(bits, 3)), b.constant(bits, THIRD)), x)
    for _ in range(2):
        # Halley's step for r³ = a; it cubes the error.
        cube = b.fmul(b.fmul(r, r), r)
        r = b.fmul(r, b.fdiv(b.fadd(cube, b.fadd(a, a)), b.fadd(b.fadd(cube, cube), a)))
    # One Newton step: the remainder is small, so only the last sum rounds.
    square = b.fmul(r, r)
    left = residue(b, square, r, a)
    r = b.fadd(r, b.fdiv(left, b.fmul(square, b.constant(x, 3.0))))
    r = b.fmul(r, back)
    is_usual = b.and_(b.fcmp_ordered(">", size, b.constant(x, 0.0)), b.fcmp_ordered("<", size, b.constant(x, math.inf)))
    return b.select(is_usual, b.copysign(r, x), x)


def logaddexp(b: Assembler[V], x: V, y: V) -> V:
    is_first = b.fcmp_ordered(">", x, y)
    larger, smaller = b.select(is_first, x, y), b.select(is_first, y, x)
    value = b.fadd(larger, log1p(b, exponential(b, b.fsub(smaller, larger))))
    # Equal infinities have no difference.
    is_equal = b.fcmp_ordered("==", x, y)
    value = b.select(is_equal, b.fadd(x, b.constant(x, math.log(2))), value)
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), value)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (trigonometry.sinh.op, f32): sinh,
    (trigonometry.cosh.op, f32): cosh,
    (activation.log10.op, f32): log10,
    (activation.cbrt.op, f32): cbrt,
    (arithmetic.logaddexp.op, f32): logaddexp,
}

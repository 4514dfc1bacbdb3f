"""Building blocks of vector functions, for f32 and f64 alike: fused products, bits, powers of two, selects, exact sums.

A *pair* is a number as an unevaluated sum of two, the second below an ulp of the first: the rounding error of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.ir.dtypes import f32, f64

Pair: TypeAlias = tuple[V, V]


def polynomial(b: Assembler[V], x: V, coefficients: Sequence[float]) -> V:
    """Horner's rule; coefficients from the lowest power up."""
    total: V = b.constant(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.constant(x, c))
    return total


def is_nan(b: Assembler[V], x: V) -> V:
    return b.fcmp_unordered("uno", x, x)


def clamped(b: Assembler[V], x: V, low: float | None, high: float | None) -> V:
    """`x` between two bounds; NaN stays."""
    if high is not None:
        x = b.select(b.fcmp_ordered(">", x, b.constant(x, high)), b.constant(x, high), x)
    if low is not None:
        x = b.select(b.fcmp_ordered("<", x, b.constant(x, low)), b.constant(x, low), x)
    return x


def _format(b: Assembler[V], x: V) -> tuple[int, int]:
    """(bits of the mantissa, bias of the exponent)."""
    return (52, 1023) if b.dtype_of(x) is f64 else (23, 127)


def power_of_two(b: Assembler[V], n: V, like: V) -> V:
    """2^n where that is a normal number."""
    mantissa, bias = _format(b, like)
    return b.from_bits(b.shl(b.add(n, b.constant(n, bias)), b.constant(n, mantissa)), like)


def rounded(b: Assembler[V], x: V, factor: float = 1.0) -> tuple[V, V]:
    """The integer nearest to factor·x as a float and as an integer, below 2^22 (2^51). Of NaN the integer is anything."""
    shift = b.constant(x, 1.5 * 2.0 ** _format(b, x)[0])
    shifted = b.fadd(x, shift) if factor == 1.0 else b.fma(x, b.constant(x, factor), shift)
    return b.fsub(shifted, shift), b.sub(b.bits(shifted), b.bits(shift))


def above(b: Assembler[V], x: V, low: float, y: V) -> V:
    """`y` where `x` is at least `low` or NaN, and 0 elsewhere: what would vanish when it is scaled is taken out before.

    A result that is rounded to 0, or to a subnormal number, is made in microcode: a hundred cycles for the whole vector.
    """
    return b.select(b.fcmp_ordered("<", x, b.constant(x, low)), b.constant(y, 0.0), y)


def scaled_in_two(b: Assembler[V], x: V, n: V) -> V:
    """x·2^n for an x near 1, rounded once where it is subnormal: `Assembler.scaled` for languages without an instruction."""
    # A logical shift of a positive number: 64-bit integers have no arithmetic one in AVX2.
    half = b.sub(b.lshr(b.add(n, b.constant(n, 2048)), b.constant(n, 1)), b.constant(n, 1024))
    return b.fmul(b.fmul(x, power_of_two(b, half, x)), power_of_two(b, b.sub(n, half), x))


def either(b: Assembler[V], condition: V, x: Pair[V], y: Pair[V]) -> Pair[V]:
    """One of two pairs."""
    return b.select(condition, x[0], y[0]), b.select(condition, x[1], y[1])


def exact_sum(b: Assembler[V], x: V, y: V) -> Pair[V]:
    """x + y as a pair, whichever is larger."""
    total = b.fadd(x, y)
    other = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, other)), b.fsub(y, other))


def exact_product(b: Assembler[V], x: V, y: V) -> Pair[V]:
    """x·y as a pair."""
    product = b.fmul(x, y)
    if b.fuses:
        return product, b.fma(x, y, b.fneg(product))
    # A subtraction prevents contraction by the compiler: a product that is fused with its use would be another number.
    product = b.fsub(product, b.constant(x, 0.0))
    (x_high, x_low), (y_high, y_low) = halves(b, x), halves(b, y)
    lost = b.fsub(b.fmul(x_high, y_high), product)
    lost = b.fadd(b.fadd(lost, b.fmul(x_high, y_low)), b.fmul(x_low, y_high))
    return product, b.fadd(lost, b.fmul(x_low, y_low))


def halves(b: Assembler[V], x: V) -> Pair[V]:
    """An f32 as a sum of two numbers of twelve digits, whose products are exact."""
    assert b.dtype_of(x) is f32, "languages with f64 fuse"
    bits = b.bits(x)
    high = b.from_bits(b.and_(bits, b.constant(bits, -1 << 12)), x)
    return high, b.fsub(x, high)


def residue(b: Assembler[V], x: V, y: V, near: V) -> V:
    """near - x·y, of numbers so near that the difference is exact."""
    if b.fuses:
        return b.fma(b.fneg(x), y, near)
    product, lost = exact_product(b, x, y)
    return b.fsub(b.fsub(near, product), lost)


def exact_quotient(b: Assembler[V], x: V, y: Pair[V]) -> Pair[V]:
    """x/y as a pair."""
    quotient = b.fdiv(x, y[0])
    left = b.fma(b.fneg(quotient), y[1], residue(b, quotient, y[0], x))
    return quotient, b.fdiv(left, y[0])

"""What vector functions are written in, for f32 and f64 alike: fused products, bits, powers of two, selects, exact sums.

A *pair* is a number as an unevaluated sum of two, the second below an ulp of the first: what a rounding lost, kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx_cpu.native import ir
from rlx_cpu.native.build import I1, I32, constant, declare, integer_like, intrinsic, suffix, width

__all__ = [
    "Pair",
    "above",
    "absolute",
    "any_lane",
    "bits",
    "exact_product",
    "exact_quotient",
    "exact_sum",
    "fma",
    "held",
    "is_nan",
    "polynomial",
    "power_of_two",
    "rounded",
    "scaled_by",
    "scaled_up",
    "where_any",
    "with_sign",
]

Pair = tuple[ir.Value, ir.Value]


def is_double(x: ir.Value) -> bool:
    return suffix(x.type).endswith("f64")


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x·y + z with one rounding."""
    return intrinsic(b, "llvm.fma", x, y, z)


def absolute(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fabs", x)


def with_sign(b: ir.IRBuilder, size: ir.Value, x: ir.Value) -> ir.Value:
    """`size` with the sign of `x`."""
    return intrinsic(b, "llvm.copysign", size, x)


def polynomial(b: ir.IRBuilder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Horner's rule; coefficients from the lowest power up."""
    total: ir.Value = constant(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(b, total, x, constant(x.type, c))
    return total


def bits(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """A float's bits as integers."""
    return b.bitcast(x, integer_like(x.type))


def is_nan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.fcmp_unordered("uno", x, x)


def any_lane(b: ir.IRBuilder, condition: ir.Value) -> ir.Value:
    """Whether a condition holds in some lane."""
    if width(condition) == 1:
        return condition
    name = f"llvm.vector.reduce.or.{suffix(condition.type)}"
    return b.call(declare(b.module, name, I1, [condition.type]), [condition])


def where_any(b: ir.IRBuilder, condition: ir.Value, make: Callable[[], ir.Value], usual: ir.Value) -> ir.Value:
    """`make()` where a condition holds, `usual` elsewhere; the code of `make` runs only if it holds in some lane."""
    before = b.block
    then, after = b.append_basic_block("some"), b.append_basic_block("after")
    b.cbranch(any_lane(b, condition), then, after)
    b.position_at_end(then)
    mixed = b.select(condition, make(), usual)
    last = b.block
    b.branch(after)
    b.position_at_end(after)
    result = b.phi(usual.type)
    result.add_incoming(usual, before)
    result.add_incoming(mixed, last)
    return result


def held(b: ir.IRBuilder, x: ir.Value, low: float | None, high: float | None) -> ir.Value:
    """`x` between two bounds; NaN stays."""
    if high is not None:
        x = b.select(b.fcmp_ordered(">", x, constant(x.type, high)), constant(x.type, high), x)
    if low is not None:
        x = b.select(b.fcmp_ordered("<", x, constant(x.type, low)), constant(x.type, low), x)
    return x


def _format(x: ir.Value) -> tuple[int, int]:
    """(bits of the mantissa, bias of the exponent)."""
    return (52, 1023) if is_double(x) else (23, 127)


def power_of_two(b: ir.IRBuilder, n: ir.Value, like: ir.Value) -> ir.Value:
    """2^n where that is a normal number."""
    mantissa, bias = _format(like)
    return b.bitcast(b.shl(b.add(n, constant(n.type, bias)), constant(n.type, mantissa)), like.type)


def rounded(b: ir.IRBuilder, x: ir.Value, factor: float = 1.0) -> tuple[ir.Value, ir.Value]:
    """The integer nearest to factor·x as a float and as an integer, below 2^22 (2^51). Of NaN the integer is anything."""
    shift = constant(x.type, 1.5 * 2.0 ** _format(x)[0])
    shifted = b.fadd(x, shift) if factor == 1.0 else fma(b, x, constant(x.type, factor), shift)
    return b.fsub(shifted, shift), b.sub(bits(b, shifted), bits(b, shift))


def above(b: ir.IRBuilder, x: ir.Value, low: float, y: ir.Value) -> ir.Value:
    """`y` where `x` is at least `low` or NaN, and 0 elsewhere: what would vanish when it is scaled is taken out before.

    A result that is rounded to 0, or to a subnormal number, is made in microcode: a hundred cycles for the whole vector.
    """
    return b.select(b.fcmp_ordered("<", x, constant(x.type, low)), constant(y.type, 0.0), y)


def scaled_by(b: ir.IRBuilder, x: ir.Value, whole: ir.Value, n: ir.Value) -> ir.Value:
    """x·2^n for an x near 1, rounded once where it is subnormal."""
    if width(x) == 16 and not is_double(x):
        return scaled_up(b, x, whole)
    # A logical shift of a positive number: 64-bit integers have no arithmetic one in AVX2.
    half = b.sub(b.lshr(b.add(n, constant(n.type, 2048)), constant(n.type, 1)), constant(n.type, 1024))
    return b.fmul(b.fmul(x, power_of_two(b, half, x)), power_of_two(b, b.sub(n, half), x))


def scaled_up(b: ir.IRBuilder, x: ir.Value, n: ir.Value) -> ir.Value:
    """x·2^⌊n⌋ of sixteen lanes of f32: one instruction of AVX-512, the only set that has them."""
    name, mask = "llvm.x86.avx512.mask.scalef.ps.512", ir.Constant(ir.IntType(16), 0xFFFF)
    types: list[Any] = [x.type, x.type, x.type, mask.type, I32]
    return b.call(declare(b.module, name, x.type, types), [x, n, x, mask, ir.Constant(I32, 4)])


def exact_sum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> Pair:
    """x + y as a pair, whichever is larger."""
    total = b.fadd(x, y)
    other = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, other)), b.fsub(y, other))


def exact_product(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> Pair:
    """x·y as a pair."""
    product = b.fmul(x, y)
    return product, fma(b, x, y, b.fneg(product))


def exact_quotient(b: ir.IRBuilder, x: ir.Value, y: Pair) -> Pair:
    """x/y as a pair."""
    quotient = b.fdiv(x, y[0])
    left = fma(b, b.fneg(quotient), y[1], fma(b, b.fneg(quotient), y[0], x))
    return quotient, b.fdiv(left, y[0])

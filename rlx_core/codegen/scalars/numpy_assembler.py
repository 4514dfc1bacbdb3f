"""Scalar code as NumPy: every instruction computed immediately on arrays, so that scalar code can be tested without a compiler.

Integer registers are arrays of the signed dtype, as they are signless; unsigned instructions use a view. A fused product is
computed in a wider float and rounded once: f32 in f64, f64 in long doubles, where they are wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from rlx_core.codegen.scalars.assembler import Relation
from rlx_core.codegen.scalars.floats import scaled_in_two
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType, bool_, dtype
from rlx_core.ir.op import Op
from rlx_core.ops.conversion import cast_array

Array: TypeAlias = np.ndarray

_COMPARED: dict[str, np.ufunc] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def evaluated(table: ScalarTable, op: Op, operands: Sequence[Array]) -> Array:
    """Return the result of the code of `op` on arrays of equal shape, as in registers: f32 for f16 and bf16, not rounded."""
    dtypes = tuple(dtype(x.dtype) for x in operands)
    refusal = table.refusal(op, dtypes)
    assert refusal is None, f"needs {refusal}"
    registers = (register(x.astype(d.accumulator.numpy)) for x, d in zip(operands, dtypes, strict=True))
    with np.errstate(all="ignore"):
        return table.apply(NumpyAssembler(), op, dtypes, tuple(registers))


def register(x: Array) -> Array:
    """An array as a register: unsigned integers by their bits."""
    return x.view(f"i{x.itemsize}") if x.dtype.kind == "u" else x


def unsigned(x: Array) -> Array:
    """A register read as numbers without a sign."""
    return x.view(f"u{x.itemsize}") if x.dtype.kind == "i" else x


def fused(x: Array, y: Array, z: Array, wide: Any) -> Array:
    """x·y + z rounded once, of a float that has less than half as many digits as `wide`, or less than 9 fewer.

    Source:
        Boldo, Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd".
    """
    high, low = exact_product(x.astype(wide), y.astype(wide))
    middle, remainder = exact_sum(z.astype(wide), low)
    top, left = exact_sum(high, middle)
    odd = odd_sum(top, odd_sum(left, remainder))
    plain = x * y + z
    return np.where(np.isfinite(top) & np.isfinite(odd) & (odd != 0), odd.astype(x.dtype), plain)


def exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y and what its rounding lost."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def exact_product(x: Array, y: Array) -> tuple[Array, Array]:
    """x·y and what its rounding lost."""
    product = x * y
    (a, b), (c, d) = halves(x), halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


def halves(x: Array) -> tuple[Array, Array]:
    """x as a sum of two numbers of half as many digits."""
    factor = x.dtype.type(2) ** -(-(np.finfo(x.dtype).nmant + 1) // 2) + x.dtype.type(1)
    shifted = x * factor
    high = shifted - (shifted - x)
    return high, x - high


def odd_sum(x: Array, y: Array) -> Array:
    """x + y rounded to odd: where it is not exact, to the neighbour whose last digit is 1, so that rounding again is right."""
    total, lost = exact_sum(x, y)
    fraction, _ = np.frexp(total)
    is_even = np.fmod(np.ldexp(fraction, np.finfo(total.dtype).nmant + 1), 2) == 0
    moves = is_even & (lost != 0) & np.isfinite(lost) & np.isfinite(total)
    return np.where(moves, np.nextafter(total, np.copysign(np.inf, lost).astype(total.dtype)), total)


class NumpyAssembler:
    """An `Assembler` of arrays; to be called where NumPy's floating-point warnings are off."""

    fuses = True

    def dtype_of(self, x: Array) -> DType:
        return dtype(x.dtype)

    def constant(self, like: Array, number: bool | int | float) -> Array:
        if like.dtype.kind == "f":
            return np.full(like.shape, number, like.dtype)
        bits = 1 if like.dtype == bool else 8 * like.itemsize
        pattern = int(number) & ((1 << bits) - 1)
        return np.full(like.shape, pattern - (1 << bits) if pattern >> (bits - 1) and bits > 1 else pattern, like.dtype)

    def number(self, dtype: DType, number: bool | int | float, beside: Array) -> Array:
        return register(np.full(beside.shape, number, dtype.numpy))

    def bits(self, x: Array) -> Array:
        return x.view(f"i{x.itemsize}")

    def from_bits(self, x: Array, like: Array) -> Array:
        return x.view(like.dtype)

    def converted(self, x: Array, source: DType, to: DType) -> Array:
        assert to is not bool_, "`conversion.as_bool` makes those"
        return register(cast_array(x if source is bool_ else x.view(source.numpy), to))

    # ----------------------------------------------------------------------------------------- floats

    def fadd(self, x: Array, y: Array) -> Array:
        return x + y

    def fsub(self, x: Array, y: Array) -> Array:
        return x - y

    def fmul(self, x: Array, y: Array) -> Array:
        return x * y

    def fdiv(self, x: Array, y: Array) -> Array:
        return x / y

    def frem(self, x: Array, y: Array) -> Array:
        return np.fmod(x, y)

    def fneg(self, x: Array) -> Array:
        return -x

    def fma(self, x: Array, y: Array, z: Array) -> Array:
        wide = np.float64 if x.dtype == np.float32 else np.longdouble
        assert np.finfo(wide).nmant > np.finfo(x.dtype).nmant, "long doubles are no wider than f64 on this machine"
        return fused(x, y, z, wide)

    def fabs(self, x: Array) -> Array:
        return np.abs(x)

    def copysign(self, size: Array, sign: Array) -> Array:
        return np.copysign(size, sign)

    def sqrt(self, x: Array) -> Array:
        return np.asarray(np.sqrt(x))

    def floor(self, x: Array) -> Array:
        return np.asarray(np.floor(x))

    def ceil(self, x: Array) -> Array:
        return np.asarray(np.ceil(x))

    def trunc_float(self, x: Array) -> Array:
        return np.asarray(np.trunc(x))

    def rint(self, x: Array) -> Array:
        return np.asarray(np.rint(x))

    def scaled(self, x: Array, whole: Array, n: Array) -> Array:
        return scaled_in_two(self, x, n)

    def library(self, name: Literal["sin", "cos", "tan"], x: Array) -> Array:
        return np.asarray({"sin": np.sin, "cos": np.cos, "tan": np.tan}[name](x))

    def fcmp_ordered(self, relation: Relation, x: Array, y: Array) -> Array:
        return np.asarray(_COMPARED[relation](x, y) & ~(np.isnan(x) | np.isnan(y)))

    def fcmp_unordered(self, relation: Relation | Literal["uno"], x: Array, y: Array) -> Array:
        is_nan = np.isnan(x) | np.isnan(y)
        return np.asarray(is_nan if relation == "uno" else _COMPARED[relation](x, y) | is_nan)

    # --------------------------------------------------------------------------------------- integers

    def add(self, x: Array, y: Array) -> Array:
        return x + y

    def sub(self, x: Array, y: Array) -> Array:
        return x - y

    def mul(self, x: Array, y: Array) -> Array:
        return x * y

    def neg(self, x: Array) -> Array:
        return -x

    def sdiv(self, x: Array, y: Array) -> Array:
        quotient = register(unsigned(np.abs(x)) // unsigned(np.abs(y)))
        return np.where((x < 0) != (y < 0), -quotient, quotient)

    def udiv(self, x: Array, y: Array) -> Array:
        return register(unsigned(x) // unsigned(y))

    def srem(self, x: Array, y: Array) -> Array:
        return x - self.sdiv(x, y) * y

    def urem(self, x: Array, y: Array) -> Array:
        return register(unsigned(x) % unsigned(y))

    def and_(self, x: Array, y: Array) -> Array:
        return x & y

    def or_(self, x: Array, y: Array) -> Array:
        return x | y

    def xor(self, x: Array, y: Array) -> Array:
        return x ^ y

    def not_(self, x: Array) -> Array:
        return ~x

    def shl(self, x: Array, count: Array) -> Array:
        return x << count

    def lshr(self, x: Array, count: Array) -> Array:
        return register(unsigned(x) >> unsigned(count))

    def ashr(self, x: Array, count: Array) -> Array:
        return x >> count

    def icmp_signed(self, relation: Relation, x: Array, y: Array) -> Array:
        return np.asarray(_COMPARED[relation](x, y))

    def icmp_unsigned(self, relation: Relation, x: Array, y: Array) -> Array:
        return np.asarray(_COMPARED[relation](unsigned(x), unsigned(y)))

    # ---------------------------------------------------------------------------------------- control

    def select(self, condition: Array, yes: Array, no: Array) -> Array:
        return np.where(condition, yes, no)

    def rarely(self, condition: Array, make: Callable[[], Array], usual: Array) -> Array:
        return self.select(condition, make(), usual) if condition.any() else usual

    def repeated(
        self,
        state: Sequence[Array],
        goes_on: Callable[[Sequence[Array]], Array],
        body: Callable[[Sequence[Array]], Sequence[Array]],
    ) -> Sequence[Array]:
        while goes_on(state).any():
            state = body(state)
        return state

    def invoke(self, name: str, make: Callable[..., Array], args: Sequence[Array], *, is_inline: bool) -> Array:
        return make(self, *args)

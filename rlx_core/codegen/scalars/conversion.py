"""Casts between the dtypes of registers, and f16 and bf16 between 16 bits of memory and an f32.

bfloat16 is the upper half of an f32. float16 takes a product by a power of two and a few choices, where a target has no
instruction for it.
"""

from __future__ import annotations

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bf16, bool_, f16, f32, u16, u32
from rlx_core.ir.op import Op
from rlx_core.ops import conversion
from rlx_core.ops.floating import Bitcast


def cast(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    assert isinstance(op, conversion.Cast), "its row is of casts"
    return converted(b, args[0], dtypes[0], op.to)


def converted(b: Assembler[V], x: V, source: DType, to: DType) -> V:
    """`x` in another dtype, by the rules of `Cast`."""
    if to.is_narrow:
        return rounded_to(b, to, converted(b, x, source, f32))
    if source is to:
        return x
    return as_bool(b, x) if to is bool_ else b.converted(x, source, to)


def as_bool(b: Assembler[V], x: V) -> V:
    """`x != 0`; NaN is not 0."""
    if b.dtype_of(x).is_float:
        return b.fcmp_unordered("!=", x, b.constant(x, 0))
    return x if b.dtype_of(x) is bool_ else b.icmp_unsigned("!=", x, b.constant(x, 0))


def rounded_to(b: Assembler[V], dtype: DType, x: V) -> V:
    """Return an f32 rounded to a narrow dtype, as an f32: the result of a cast there and back."""
    lost = 16 if dtype is bf16 else 13
    bits = b.bits(x)
    odd = b.and_(b.lshr(bits, b.constant(bits, lost)), b.constant(bits, 1))
    half = b.constant(bits, (1 << (lost - 1)) - 1)
    near = b.from_bits(b.and_(b.add(bits, b.add(half, odd)), b.constant(bits, -1 << lost)), x)
    if dtype is f16:
        size = b.fabs(near)
        near = b.select(
            b.fcmp_ordered(">", size, b.constant(x, 65504.0)),
            b.copysign(b.constant(x, float("inf")), x),
            near,
        )
        # Subnormal numbers are multiples of 2^-24: an addend whose last bit that is rounds to them.
        size, shift = b.fabs(x), b.constant(x, 0.75)
        multiple = b.copysign(b.fsub(b.fadd(size, shift), shift), x)
        near = b.select(b.fcmp_ordered("<", size, b.constant(x, 2.0**-14)), multiple, near)
    quiet = b.from_bits(b.or_(b.and_(bits, b.constant(bits, -1 << lost)), b.constant(bits, 1 << 22)), x)
    return b.select(b.fcmp_unordered("uno", x, x), quiet, near)


def widened(b: Assembler[V], dtype: DType, x: V) -> V:
    """An f32 from the 16 bits of a narrow float, with integers alone; exact."""
    like, bits = b.number(f32, 0.0, x), b.converted(x, u16, u32)
    if dtype is bf16:
        return b.from_bits(b.shl(bits, b.constant(bits, 16)), like)
    # The exponent is 112 too small; one product mends it for normal and subnormal numbers alike.
    size = b.from_bits(b.shl(b.and_(bits, b.constant(bits, 0x7FFF)), b.constant(bits, 13)), like)
    scaled = b.fmul(size, b.constant(size, 2.0**112))
    is_special = b.icmp_unsigned(">=", b.and_(bits, b.constant(bits, 0x7FFF)), b.constant(bits, 0x7C00))
    special = b.or_(b.bits(size), b.constant(bits, 0x7F800000))
    magnitude = b.select(is_special, special, b.bits(scaled))
    sign = b.shl(b.and_(bits, b.constant(bits, 0x8000)), b.constant(bits, 16))
    return b.from_bits(b.or_(magnitude, sign), like)


def narrowed(b: Assembler[V], dtype: DType, x: V) -> V:
    """The 16 bits of the narrow float nearest to an f32, with integers alone; ties go to even."""
    if dtype is bf16:
        high = b.bits(rounded_to(b, bf16, x))
        return b.converted(b.lshr(high, b.constant(high, 16)), u32, u16)
    near = rounded_to(b, f16, x)
    bits, size = b.bits(near), b.fabs(near)
    # Representable numbers are scaled down by the same power of two, and then their bits are in place.
    scaled = b.lshr(b.bits(b.fmul(size, b.constant(x, 2.0**-112))), b.constant(bits, 13))
    is_nan = b.fcmp_unordered("uno", x, x)
    is_large = b.fcmp_ordered(">", size, b.constant(x, 65504.0))
    result = b.select(is_large, b.constant(bits, 0x7C00), scaled)
    result = b.select(is_nan, b.constant(bits, 0x7E00), result)
    sign = b.and_(b.lshr(bits, b.constant(bits, 16)), b.constant(bits, 0x8000))
    return b.converted(b.or_(result, sign), u32, u16)


def reason_against(op: conversion.Cast | Bitcast, dtypes: tuple[DType, ...]) -> str | None:
    """Return why there is no code for a cast."""
    return None if op.to in dtypes else f"a cast to what registers hold, not {op.to}"


def bitcast(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    assert isinstance(op, Bitcast), "its row is of bit casts"
    (x,) = args
    if op.of is op.to:
        return x
    if op.of.is_narrow:
        x = narrowed(b, op.of, x)
    elif op.of.is_float:
        return b.bits(x)
    if op.to.is_narrow:
        return widened(b, op.to, x)
    return b.from_bits(x, b.number(op.to, 0.0, x)) if op.to.is_float else x


ROWS: dict[type[Op], Row] = {
    conversion.Cast: Row(cast, reason=reason_against),
    Bitcast: Row(bitcast, (*INTEGERS, *FLOATS), reason=reason_against),
}

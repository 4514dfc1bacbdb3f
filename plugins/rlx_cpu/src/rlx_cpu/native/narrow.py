"""f16 and bf16 between memory and registers: 16 bits there, f32 here, rounded to nearest with ties to even on the way back.

bfloat16 is the upper half of an f32, so integers do it everywhere. float16 has instructions on every set but plain SSE2, where
integers do that too: a call into a compiler's support library is nothing that a JIT can count on.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.dtypes import DType, bf16, f16
from rlx_cpu.native import ir
from rlx_cpu.native.build import FLOAT, HALF, I16, I32, constant, intrinsic, width
from rlx_cpu.native.isa import Isa

__all__ = ["narrowed", "rounded_to", "widened"]


def _like(x: ir.Value, element: Any) -> Any:
    return element if width(x) == 1 else ir.VectorType(element, width(x))


def widened(b: ir.IRBuilder, dtype: DType, x: ir.Value, isa: Isa) -> ir.Value:
    """An f32 from 16 bits of memory; exact."""
    if dtype is f16 and isa.converts_f16:
        return b.fpext(x, _like(x, FLOAT))
    bits = b.zext(x if dtype is bf16 else b.bitcast(x, _like(x, I16)), _like(x, I32))
    if dtype is bf16:
        return b.bitcast(b.shl(bits, constant(bits.type, 16)), _like(x, FLOAT))
    # The exponent is 112 too small; one product mends it for normal and subnormal numbers alike.
    size = b.bitcast(b.shl(b.and_(bits, constant(bits.type, 0x7FFF)), constant(bits.type, 13)), _like(x, FLOAT))
    scaled = b.fmul(size, constant(size.type, 2.0**112))
    is_special = b.icmp_unsigned(">=", b.and_(bits, constant(bits.type, 0x7FFF)), constant(bits.type, 0x7C00))
    special = b.or_(b.bitcast(size, bits.type), constant(bits.type, 0x7F800000))
    found = b.select(is_special, special, b.bitcast(scaled, bits.type))
    sign = b.shl(b.and_(bits, constant(bits.type, 0x8000)), constant(bits.type, 16))
    return b.bitcast(b.or_(found, sign), size.type)


def narrowed(b: ir.IRBuilder, dtype: DType, x: ir.Value, isa: Isa) -> ir.Value:
    """16 bits for memory from an f32."""
    if dtype is f16 and isa.converts_f16:
        return b.fptrunc(x, _like(x, HALF))
    if dtype is bf16:
        return b.trunc(b.lshr(_bits_of(b, rounded_to(b, bf16, x)), constant(_like(x, I32), 16)), _like(x, I16))
    near = rounded_to(b, f16, x)
    bits = _bits_of(b, near)
    size = intrinsic(b, "llvm.fabs", near)
    # What is representable is brought down by the same power of two, and then its bits are in place.
    scaled = b.lshr(_bits_of(b, b.fmul(size, constant(x.type, 2.0**-112))), constant(bits.type, 13))
    is_nan = b.fcmp_unordered("uno", x, x)
    is_large = b.fcmp_ordered(">", size, constant(x.type, 65504.0))
    found = b.select(is_large, constant(bits.type, 0x7C00), scaled)
    found = b.select(is_nan, constant(bits.type, 0x7E00), found)
    sign = b.and_(b.lshr(bits, constant(bits.type, 16)), constant(bits.type, 0x8000))
    return b.bitcast(b.trunc(b.or_(found, sign), _like(x, I16)), _like(x, HALF))


def rounded_to(b: ir.IRBuilder, dtype: DType, x: ir.Value) -> ir.Value:
    """The number of a narrow dtype that is nearest to an f32, as an f32: what a cast there and back leaves."""
    lost = 16 if dtype is bf16 else 13
    bits = _bits_of(b, x)
    odd = b.and_(b.lshr(bits, constant(bits.type, lost)), constant(bits.type, 1))
    half = constant(bits.type, (1 << (lost - 1)) - 1)
    near = b.bitcast(b.and_(b.add(bits, b.add(half, odd)), constant(bits.type, -1 << lost)), x.type)
    if dtype is f16:
        size = intrinsic(b, "llvm.fabs", near)
        near = b.select(
            b.fcmp_ordered(">", size, constant(x.type, 65504.0)),
            intrinsic(b, "llvm.copysign", constant(x.type, float("inf")), x),
            near,
        )
        # Subnormal numbers are multiples of 2^-24: an addend whose last bit that is rounds to them.
        size, shift = intrinsic(b, "llvm.fabs", x), constant(x.type, 0.75)
        multiple = intrinsic(b, "llvm.copysign", b.fsub(b.fadd(size, shift), shift), x)
        near = b.select(b.fcmp_ordered("<", size, constant(x.type, 2.0**-14)), multiple, near)
    quiet = b.bitcast(b.or_(b.and_(bits, constant(bits.type, -1 << lost)), constant(bits.type, 1 << 22)), x.type)
    return b.select(b.fcmp_unordered("uno", x, x), quiet, near)


def _bits_of(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.bitcast(x, _like(x, I32))

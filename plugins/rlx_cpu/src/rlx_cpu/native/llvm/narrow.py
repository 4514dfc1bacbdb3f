"""f16 and bf16 in memory, f32 in registers: stores round to nearest with ties to even.

float16 has instructions on every set except plain SSE2, which uses integer arithmetic as bfloat16 does everywhere: a JIT cannot
rely on a compiler's support library.
"""

from __future__ import annotations

from rlx_core.codegen.scalars import conversion
from rlx_core.ir.dtypes import DType, f16
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import FLOAT, HALF
from rlx_cpu.native.llvm.ir.numbers import in_lanes, width
from rlx_cpu.native.llvm.isa import Isa


def widened(b: ir.IRBuilder, dtype: DType, x: ir.LlvmValue, isa: Isa) -> ir.LlvmValue:
    """An f32 from 16 bits of memory; exact."""
    if dtype is f16 and isa.converts_f16:
        return b.fpext(x, in_lanes(FLOAT, width(x)))
    return conversion.widened(b, dtype, b.bits(x) if dtype is f16 else x)


def narrowed(b: ir.IRBuilder, dtype: DType, x: ir.LlvmValue, isa: Isa) -> ir.LlvmValue:
    """16 bits for memory from an f32."""
    half = in_lanes(HALF, width(x))
    if dtype is f16 and isa.converts_f16:
        return b.fptrunc(x, half)
    bits = conversion.narrowed(b, dtype, x)
    return b.bitcast(bits, half) if dtype is f16 else bits

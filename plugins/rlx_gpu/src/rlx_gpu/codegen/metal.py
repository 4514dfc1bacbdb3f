"""The Metal Shading Language, compiled in safe-math mode; no f64."""

from __future__ import annotations

from rlx_core.ir.dtypes import f32, i32
from rlx_gpu.codegen.c_family import FRAGMENTS, WITHOUT_F64, builtins, fault_fragment
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.simdgroup_matrices import METAL_UNIT

_BASE = """
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef float f32; typedef uint2 u32x2; typedef uint4 u32x4;
#define RLX_GLOBAL device
#define RLX_SHARED threadgroup
#define RLX_FN static inline
#define RLX_UNROLL _Pragma("unroll")
#define rlx_barrier() threadgroup_barrier(mem_flags::mem_threadgroup)
"""

METAL = GpuDialect(
    name="metal",
    suffix=".metal",
    dtypes=WITHOUT_F64,
    buffers="pointer",
    base=_BASE,
    fragments={
        "rlx_u32_of_f32": "RLX_FN u32 rlx_u32_of_f32(f32 x) { return as_type<uint>(x); }",
        "rlx_f32_of_u32": "RLX_FN f32 rlx_f32_of_u32(u32 x) { return as_type<float>(x); }",
        **FRAGMENTS,
        "rlx_f32_of_f16": "RLX_FN f32 rlx_f32_of_f16(u16 half_word) { return float(as_type<half>(half_word)); }",
        "rlx_f16_of_f32": "RLX_FN u16 rlx_f16_of_f32(f32 x) { return as_type<ushort>(half(x)); }",
        "rlx_exchange": """
template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return simd_shuffle_xor(x, (ushort)distance); }""",
        "rlx_memory_barrier": """
RLX_FN void rlx_memory_barrier() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }""",
        "rlx_fault": fault_fragment(
            "device atomic_uint*", "atomic_fetch_min_explicit(word, place, memory_order_relaxed);"
        ),
        **METAL_UNIT.fragments,
    },
    matrix_unit=METAL_UNIT,
    # The Metal Shading Language specification, accuracy without fast math.
    builtins={
        **builtins(exp=4, exp2=4, log=4, log2=4, log10=4, rsqrt=2, sin=4, cos=4, asin=4, acos=4, sinh=4, cosh=4),
        **builtins(asinh=4, acosh=4, tan=6, atan=5, atanh=5, tanh=5, atan2=6, pow=16),
    },
    inexact=frozenset(("frem",)),  # x - y·trunc(x/y)
    exchanged_dtypes=frozenset((f32, i32)),
    head=(
        "[[max_total_threads_per_threadgroup({size})]] kernel void {name}({arguments}, "
        "u32 thread_in_group [[thread_index_in_threadgroup]], "
        "u32 group_in_grid [[threadgroup_position_in_grid]]) {{"
    ),
    most_arguments=31,
    argument="RLX_GLOBAL {const}{type}* {name} [[buffer({number})]]",
    status="device atomic_uint* status [[buffer({number})]], constant u32& site [[buffer({next})]]",
    thread="thread_in_group",
    group="group_in_grid",
)

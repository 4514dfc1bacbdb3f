"""OpenCL C 1.2, full profile; f64 needs the device's `cl_khr_fp64`.

Without `cl_khr_fp16` halves are converted by their bits: `vload_half` requires memory that contains a half, and a `ushort` in
registers is not memory: a compiler may move such loads before its stores.
"""

from __future__ import annotations

from rlx_gpu.codegen.c_family import F16_OF_F32, F32_OF_F16, FRAGMENTS, REAL_DTYPES, builtins, fault_fragment
from rlx_gpu.codegen.languages import GpuDialect

_BASE = """
#pragma OPENCL FP_CONTRACT OFF
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef float f32; typedef uint2 u32x2; typedef uint4 u32x4;
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#endif
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define RLX_GLOBAL __global
#define RLX_SHARED __local
#define RLX_FN static
#define RLX_UNROLL _Pragma("unroll")
#define rlx_thread() ((u32)get_local_id(0))
#define rlx_group() ((u32)get_group_id(0))
#define rlx_barrier() barrier(CLK_LOCAL_MEM_FENCE)
"""

OPENCL = GpuDialect(
    name="opencl",
    suffix=".cl",
    dtypes=REAL_DTYPES,
    buffers="offset",
    base=_BASE,
    fragments={
        "rlx_u32_of_f32": "RLX_FN u32 rlx_u32_of_f32(f32 x) { return as_uint(x); }",
        "rlx_f32_of_u32": "RLX_FN f32 rlx_f32_of_u32(u32 x) { return as_float(x); }",
        "rlx_u64_of_f64": "RLX_FN u64 rlx_u64_of_f64(f64 x) { return as_ulong(x); }",
        "rlx_f64_of_u64": "RLX_FN f64 rlx_f64_of_u64(u64 x) { return as_double(x); }",
        **FRAGMENTS,
        "rlx_f32_of_f16": f"""
#ifdef cl_khr_fp16
RLX_FN f32 rlx_f32_of_f16(u16 half_word) {{ return (f32)as_half(half_word); }}
#else{F32_OF_F16}
#endif""",
        "rlx_f16_of_f32": f"""
#ifdef cl_khr_fp16
RLX_FN u16 rlx_f16_of_f32(f32 x) {{ return as_ushort(convert_half_rte(x)); }}
#else{F16_OF_F32}
#endif""",
        "rlx_memory_barrier": """
RLX_FN void rlx_memory_barrier() { barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); }""",
        "rlx_fault": fault_fragment("volatile RLX_GLOBAL u32*", "atomic_min(word, place);"),
    },
    # The OpenCL C specification, table of relative errors.
    builtins={
        **builtins(exp=3, exp2=3, expm1=3, log=3, log2=3, log10=3, log1p=2, rsqrt=2, sin=4, cos=4, asin=4, acos=4),
        **builtins(sinh=4, cosh=4, asinh=4, acosh=4, cbrt=2, hypot=4),
        **builtins(tanh=5, tan=5, atan=5, atanh=5, atan2=6, pow=16, erf=16, erfc=16),
    },
    options=("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt"),
    head="__kernel __attribute__((reqd_work_group_size({size}, 1, 1))) void {name}({arguments}) {{",
    argument="RLX_GLOBAL {const}u8* {name}_memory, const u64 {name}_offset",
    status="volatile RLX_GLOBAL u32* status, const u32 site",
)

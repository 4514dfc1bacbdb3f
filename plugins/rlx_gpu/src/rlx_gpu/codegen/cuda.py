"""CUDA C for NVRTC without headers, and HIP, which is the same but for a few intrinsics."""

from __future__ import annotations

from attrs import evolve

from rlx_core.ir.dtypes import f32, f64, i32, i64
from rlx_gpu.codegen.c_family import FRAGMENTS, REAL_DTYPES, builtins, fault_fragment
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.matrix_units import CUDA_TF32_UNIT, CUDA_UNIT
from rlx_gpu.codegen.units.warpgroup_matrices import WARPGROUP_FRAGMENTS
from rlx_gpu.codegen.units.warpgroup_products import print_warpgroup_product

_BASE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef float f32; typedef double f64; typedef uint2 u32x2; typedef uint4 u32x4;
#define RLX_GLOBAL
#define RLX_SHARED __shared__
#define RLX_FN static __device__ __forceinline__
#define RLX_UNROLL _Pragma("unroll")
#define rlx_thread() ((u32)threadIdx.x)
#define rlx_group() ((u32)blockIdx.x)
#define rlx_barrier() __syncthreads()
"""

_UNITS = {**CUDA_UNIT.fragments, **WARPGROUP_FRAGMENTS}

CUDA = GpuDialect(
    name="cuda",
    suffix=".cu",
    dtypes=REAL_DTYPES,
    buffers="pointer",
    base=_BASE,
    fragments={
        "rlx_u32_of_f32": "RLX_FN u32 rlx_u32_of_f32(f32 x) { return __float_as_uint(x); }",
        "rlx_f32_of_u32": "RLX_FN f32 rlx_f32_of_u32(u32 x) { return __uint_as_float(x); }",
        "rlx_u64_of_f64": "RLX_FN u64 rlx_u64_of_f64(f64 x) { return (u64)__double_as_longlong(x); }",
        "rlx_f64_of_u64": "RLX_FN f64 rlx_f64_of_u64(u64 x) { return __longlong_as_double((i64)x); }",
        **FRAGMENTS,
        "rlx_f32_of_f16": """
RLX_FN f32 rlx_f32_of_f16(u16 half_word) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half_word)); return x; }""",
        "rlx_f16_of_f32": """
RLX_FN u16 rlx_f16_of_f32(f32 x) {
  u16 half_word;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half_word) : "f"(x));
  return half_word;
}""",
        "rlx_exchange": """
template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }""",
        "rlx_memory_barrier": "RLX_FN void rlx_memory_barrier() { __syncthreads(); }",
        "rlx_fault": fault_fragment("u32*", "atomicMin(word, place);"),
        **_UNITS,
    },
    matrix_unit=CUDA_UNIT,
    # The CUDA C++ programming guide, maximum error over the full range, with neither fast-math nor fused contraction.
    builtins={
        **builtins(exp=2, exp2=2, expm1=1, log=1, log2=1, log10=2, log1p=1, rsqrt=2, sin=2, cos=2, tan=4),
        **builtins(asin=2, acos=2, atan=2, atan2=3, sinh=3, cosh=2, tanh=2, asinh=3, acosh=4, atanh=3),
        **builtins(pow=4, erf=2, erfc=4, cbrt=1, hypot=3),
    },
    options=("--std=c++17", "--fmad=false"),
    exchanged_dtypes=frozenset((f32, f64, i32, i64)),
    head='extern "C" __global__ void __launch_bounds__({size}) {name}({arguments}) {{',
    argument="{const}{type}* {name}",
    status="u32* status, const u32 site",
)

CUDA_TF32 = evolve(CUDA, matrix_unit=CUDA_TF32_UNIT)
"""The same language, whose products of f32 are rounded to TF32."""

CUDA_TURING = evolve(CUDA, matrix_unit=None)
"""The same language of compute capability 7.5, which has none of the matrix instructions and asynchronous copies of 8.0."""

CUDA_WGMMA = evolve(CUDA, product_template=print_warpgroup_product)
"""The same language of sm_90a, whose products of f16 and bf16 are multiplied by warpgroups."""

HIP = evolve(
    CUDA,
    name="hip",
    suffix=".hip",
    fragments={
        **{name: text for name, text in CUDA.fragments.items() if name not in _UNITS},
        "rlx_f32_of_f16": """
RLX_FN f32 rlx_f32_of_f16(u16 half_word) { return (f32)__builtin_bit_cast(_Float16, half_word); }""",
        "rlx_f16_of_f32": """
RLX_FN u16 rlx_f16_of_f32(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }""",
        "rlx_exchange": "template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return __shfl_xor(x, distance); }",
    },
    matrix_unit=None,
    options=("-std=c++17", "-ffp-contract=off"),
)

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
RLX_FN void rlx_fault(device atomic_uint* status, u32 site, u32 place, u64 index) {
  device atomic_uint* word = status + site * 65u;
  atomic_fetch_min_explicit(word, place, memory_order_relaxed);
  for (u32 bit = 0u; bit < 64u; bit += 1u) {
    word += 1;
    if (((index >> bit) & 1u) != 0u) { atomic_fetch_min_explicit(word, place, memory_order_relaxed); }
  }
}

[[max_total_threads_per_threadgroup(256)]] kernel void gather_b0c0a75ec217(RLX_GLOBAL const f32* m0 [[buffer(0)]], RLX_GLOBAL const u64* m1 [[buffer(1)]], RLX_GLOBAL f32* m2 [[buffer(2)]], device atomic_uint* status [[buffer(3)]], constant u32& site [[buffer(4)]], u32 thread_in_group [[thread_index_in_threadgroup]], u32 group_in_grid [[threadgroup_position_in_grid]]) {
  const u32 i = group_in_grid * 256u + thread_in_group;
  if (i < 20u) {
    const u32 g1 = i % 4u;
    const u32 g0 = i / 4u;
    const u64 v0 = m1[g0];
    const bool v1 = v0 <= ((u64)8);
    if (!v1) {
      rlx_fault(status, site + 0u, i, v0);
    }
    const bool v2 = (i64)v0 < (i64)((u64)0);
    const u64 v3 = v2 ? ((u64)0) : ((u64)8);
    const u64 v4 = v1 ? v0 : v3;
    const f32 v5 = m0[g1 + (u32)v4 * 4u];
    m2[g0 * 4u + g1] = v5;
  }
}

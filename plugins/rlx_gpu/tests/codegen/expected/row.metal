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
template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return simd_shuffle_xor(x, (ushort)distance); }

[[max_total_threads_per_threadgroup(32)]] kernel void sum_d0a3cfa95638(RLX_GLOBAL const f32* m0 [[buffer(0)]], RLX_GLOBAL f32* m1 [[buffer(1)]], u32 thread_in_group [[thread_index_in_threadgroup]], u32 group_in_grid [[threadgroup_position_in_grid]]) {
  const u32 i = group_in_grid;
  const u32 g0 = i;
  f32 a0 = 0.0f;
  RLX_UNROLL for (u32 j = 0u; j < 2u; j += 1u) {
    const u32 r = j * 32u + thread_in_group;
    if (r < 40u) {
      const u32 r1 = r;
      const f32 v1 = m0[g0 * 40u + r1];
      const f32 v2 = a0 + v1;
      a0 = v2;
    }
  }
  const f32 v3 = rlx_exchange(a0, 1u);
  const f32 v4 = a0 + v3;
  const f32 v5 = rlx_exchange(v4, 2u);
  const f32 v6 = v4 + v5;
  const f32 v7 = rlx_exchange(v6, 4u);
  const f32 v8 = v6 + v7;
  const f32 v9 = rlx_exchange(v8, 8u);
  const f32 v10 = v8 + v9;
  const f32 v11 = rlx_exchange(v10, 16u);
  const f32 v12 = v10 + v11;
  if (thread_in_group == 0u) {
    m1[g0] = v12;
  }
}

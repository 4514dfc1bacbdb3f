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

[[max_total_threads_per_threadgroup(256)]] kernel void add_e75110dac53b(RLX_GLOBAL const f32* m0 [[buffer(0)]], RLX_GLOBAL const f32* m1 [[buffer(1)]], RLX_GLOBAL f32* m2 [[buffer(2)]], u32 thread_in_group [[thread_index_in_threadgroup]], u32 group_in_grid [[threadgroup_position_in_grid]]) {
  const u32 i = group_in_grid * 256u + thread_in_group;
  if (i < 300u) {
    const u32 g0 = i;
    const f32 v0 = m0[g0];
    const f32 v1 = m1[g0];
    const f32 v2 = v0 + v1;
    m2[g0] = v2;
  }
}

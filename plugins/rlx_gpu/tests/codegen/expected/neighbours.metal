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
RLX_FN u32 rlx_u32_of_f32(f32 x) { return as_type<uint>(x); }
RLX_FN f32 rlx_f32_of_u32(u32 x) { return as_type<float>(x); }
RLX_FN f32 rlx_f32_of_bf16(u16 half_word) { return rlx_f32_of_u32((u32)half_word << 16); }

[[max_total_threads_per_threadgroup(256)]] kernel void cast_9695d42275b9(RLX_GLOBAL const u16* m0 [[buffer(0)]], RLX_GLOBAL f32* m1 [[buffer(1)]], u32 thread_in_group [[thread_index_in_threadgroup]], u32 group_in_grid [[threadgroup_position_in_grid]]) {
  const u32 i = group_in_grid * 256u + thread_in_group;
  if (i < 2u) {
    const u32 g0 = i * 4u;
    const u32x2 w0 = *(RLX_GLOBAL const u32x2*)(m0 + (g0));
    const u16 v1 = (u16)w0.x;
    const f32 v2 = rlx_f32_of_bf16(v1);
    const u32 v3 = w0.x >> 16u;
    const u16 v4 = (u16)v3;
    const f32 v5 = rlx_f32_of_bf16(v4);
    const u16 v6 = (u16)w0.y;
    const f32 v7 = rlx_f32_of_bf16(v6);
    const u32 v8 = w0.y >> 16u;
    const u16 v9 = (u16)v8;
    const f32 v10 = rlx_f32_of_bf16(v9);
    const u32 v11 = rlx_u32_of_f32(v2);
    const u32 v12 = rlx_u32_of_f32(v5);
    const u32 v13 = rlx_u32_of_f32(v7);
    const u32 v14 = rlx_u32_of_f32(v10);
    u32x4 w15;
    w15.x = v11; w15.y = v12; w15.z = v13; w15.w = v14;
    *(RLX_GLOBAL u32x4*)(m1 + (g0)) = w15;
  }
}

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

RLX_FN u32 rlx_order_key_f32_descending_nan_first_i32(u32 x0) {
  const u32 v1 = x0 & 0x7fffffffu;
  const bool v2 = (i32)x0 < (i32)0u;
  const u32 v3 = v1 | 0x80000000u;
  const u32 v4 = 0x80000000u - v1;
  const u32 v5 = v2 ? v4 : v3;
  const bool v6 = v1 > 0x7f800000u;
  const u32 v7 = v6 ? 0xffffffffu : v5;
  const u32 v8 = ~v7;
  return v8;
}
RLX_FN u32 rlx_min_of_u32_i32(u32 x0, u32 x1) {
  const bool v2 = x0 < x1;
  const u32 v3 = v2 ? x0 : x1;
  return v3;
}
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void extreme_a1c081265ee5(RLX_GLOBAL const u8* m0_memory, const u64 m0_offset, RLX_GLOBAL u8* m1_memory, const u64 m1_offset) {
  RLX_GLOBAL const u32* m0 = (RLX_GLOBAL const u32*)(m0_memory + m0_offset);
  RLX_GLOBAL u64* m1 = (RLX_GLOBAL u64*)(m1_memory + m1_offset);
  RLX_SHARED u32 shared0[32];
  RLX_SHARED u32 shared1[8];
  RLX_SHARED u32 shared2[32];
  RLX_SHARED u32 shared3[8];
  const u32 i0 = rlx_group();
  const u32 line1 = i0 / 1u;
  const u32 start2 = (i0 % 1u) * 40u;
  const u32 stop3 = ((start2 + 40u < 40u) ? start2 + 40u : 40u);
  u32 s4 = 0xffffffffu;
  u32 s5 = 0xffffffffu;
  const u32 base6 = line1 * 40u;
  for (u32 j7 = start2 + rlx_thread(); j7 < stop3; j7 += 32u) {
    const u32 v8 = m0[base6 + j7];
    const u32 v9 = rlx_order_key_f32_descending_nan_first_i32(v8);
    const bool v10 = v9 < s4;
    const bool v11 = v9 == s4;
    const bool v12 = j7 < s5;
    const bool v13 = v11 && v12;
    if (v10 || v13) {
      s4 = v9;
      s5 = j7;
    }
  }
  shared0[rlx_thread()] = s4;
  rlx_barrier();
  if (rlx_thread() < 8u) {
    u32 s14 = shared0[rlx_thread()];
    for (u32 k15 = rlx_thread() + 8u; k15 < 32u; k15 += 8u) {
      const u32 v16 = shared0[k15];
      const u32 v17 = rlx_min_of_u32_i32(s14, v16);
      s14 = v17;
    }
    shared1[rlx_thread()] = s14;
  }
  rlx_barrier();
  u32 s18 = shared1[0u];
  for (u32 k19 = 1u; k19 < 8u; k19 += 1u) {
    const u32 v20 = shared1[k19];
    const u32 v21 = rlx_min_of_u32_i32(s18, v20);
    s18 = v21;
  }
  const bool v22 = s4 == s18;
  const u32 v23 = v22 ? s5 : 0xffffffffu;
  shared2[rlx_thread()] = v23;
  rlx_barrier();
  if (rlx_thread() < 8u) {
    u32 s24 = shared2[rlx_thread()];
    for (u32 k25 = rlx_thread() + 8u; k25 < 32u; k25 += 8u) {
      const u32 v26 = shared2[k25];
      const u32 v27 = rlx_min_of_u32_i32(s24, v26);
      s24 = v27;
    }
    shared3[rlx_thread()] = s24;
  }
  rlx_barrier();
  u32 s28 = shared3[0u];
  for (u32 k29 = 1u; k29 < 8u; k29 += 1u) {
    const u32 v30 = shared3[k29];
    const u32 v31 = rlx_min_of_u32_i32(s28, v30);
    s28 = v31;
  }
  if (rlx_thread() == 0u) {
    const u64 v32 = (u64)s28;
    m1[line1] = v32;
  }
}

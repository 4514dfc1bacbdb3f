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

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void sum_596cd1d2cbae(RLX_GLOBAL const u8* m0_memory, const u64 m0_offset, RLX_GLOBAL u8* m1_memory, const u64 m1_offset) {
  RLX_GLOBAL const f32* m0 = (RLX_GLOBAL const f32*)(m0_memory + m0_offset);
  RLX_GLOBAL f32* m1 = (RLX_GLOBAL f32*)(m1_memory + m1_offset);
  RLX_SHARED f32 shared0[32];
  RLX_SHARED f32 shared1[8];
  const u32 i = rlx_group();
  const u32 g0 = i;
  f32 a0 = 0.0f;
  RLX_UNROLL for (u32 j = 0u; j < 2u; j += 1u) {
    const u32 r = j * 32u + rlx_thread();
    if (r < 40u) {
      const u32 r1 = r;
      const f32 v1 = m0[g0 * 40u + r1];
      const f32 v2 = a0 + v1;
      a0 = v2;
    }
  }
  shared0[rlx_thread()] = a0;
  rlx_barrier();
  if (rlx_thread() < 8u) {
    f32 s3 = shared0[rlx_thread()];
    for (u32 k4 = rlx_thread() + 8u; k4 < 32u; k4 += 8u) {
      const f32 v5 = shared0[k4];
      const f32 v6 = s3 + v5;
      s3 = v6;
    }
    shared1[rlx_thread()] = s3;
  }
  rlx_barrier();
  f32 s7 = shared1[0u];
  for (u32 k8 = 1u; k8 < 8u; k8 += 1u) {
    const f32 v9 = shared1[k8];
    const f32 v10 = s7 + v9;
    s7 = v10;
  }
  if (rlx_thread() == 0u) {
    m1[g0] = s7;
  }
}

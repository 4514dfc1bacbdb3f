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

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void add_543d955ce5e7(RLX_GLOBAL const u8* m0_memory, const u64 m0_offset, RLX_GLOBAL const u8* m1_memory, const u64 m1_offset, RLX_GLOBAL u8* m2_memory, const u64 m2_offset) {
  RLX_GLOBAL const f32* m0 = (RLX_GLOBAL const f32*)(m0_memory + m0_offset);
  RLX_GLOBAL const f32* m1 = (RLX_GLOBAL const f32*)(m1_memory + m1_offset);
  RLX_GLOBAL f32* m2 = (RLX_GLOBAL f32*)(m2_memory + m2_offset);
  const u32 i = rlx_group() * 256u + rlx_thread();
  if (i < 300u) {
    const u32 g0 = i;
    const f32 v0 = m0[g0];
    const f32 v1 = m1[g0];
    const f32 v2 = v0 + v1;
    m2[g0] = v2;
  }
}

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
RLX_FN void rlx_fault(volatile RLX_GLOBAL u32* status, u32 site, u32 place, u64 index) {
  volatile RLX_GLOBAL u32* word = status + site * 65u;
  atomic_min(word, place);
  for (u32 bit = 0u; bit < 64u; bit += 1u) {
    word += 1;
    if (((index >> bit) & 1u) != 0u) { atomic_min(word, place); }
  }
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void gather_5dc171d70fff(RLX_GLOBAL const u8* m0_memory, const u64 m0_offset, RLX_GLOBAL const u8* m1_memory, const u64 m1_offset, RLX_GLOBAL u8* m2_memory, const u64 m2_offset, volatile RLX_GLOBAL u32* status, const u32 site) {
  RLX_GLOBAL const f32* m0 = (RLX_GLOBAL const f32*)(m0_memory + m0_offset);
  RLX_GLOBAL const u64* m1 = (RLX_GLOBAL const u64*)(m1_memory + m1_offset);
  RLX_GLOBAL f32* m2 = (RLX_GLOBAL f32*)(m2_memory + m2_offset);
  const u32 i = rlx_group() * 256u + rlx_thread();
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

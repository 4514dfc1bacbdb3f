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
RLX_FN void rlx_fault(u32* status, u32 site, u32 place, u64 index) {
  u32* word = status + site * 65u;
  atomicMin(word, place);
  for (u32 bit = 0u; bit < 64u; bit += 1u) {
    word += 1;
    if (((index >> bit) & 1u) != 0u) { atomicMin(word, place); }
  }
}

extern "C" __global__ void __launch_bounds__(256) gather_eba8ab31fd59(const f32* m0, const u64* m1, f32* m2, u32* status, const u32 site) {
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

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
template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }

extern "C" __global__ void __launch_bounds__(32) sum_2875452ea0ce(const f32* m0, f32* m1) {
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
  if (rlx_thread() == 0u) {
    m1[g0] = v12;
  }
}

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
template <class T> RLX_FN T rlx_exchange(T x, u32 distance) { return __shfl_xor(x, distance); }

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
extern "C" __global__ void __launch_bounds__(32) extreme_9fdab2b7c896(const u32* m0, u64* m1) {
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
  const u32 v14 = rlx_exchange(s4, 1u);
  const u32 v15 = rlx_min_of_u32_i32(s4, v14);
  const u32 v16 = rlx_exchange(v15, 2u);
  const u32 v17 = rlx_min_of_u32_i32(v15, v16);
  const u32 v18 = rlx_exchange(v17, 4u);
  const u32 v19 = rlx_min_of_u32_i32(v17, v18);
  const u32 v20 = rlx_exchange(v19, 8u);
  const u32 v21 = rlx_min_of_u32_i32(v19, v20);
  const u32 v22 = rlx_exchange(v21, 16u);
  const u32 v23 = rlx_min_of_u32_i32(v21, v22);
  const bool v24 = s4 == v23;
  const u32 v25 = v24 ? s5 : 0xffffffffu;
  const u32 v26 = rlx_exchange(v25, 1u);
  const u32 v27 = rlx_min_of_u32_i32(v25, v26);
  const u32 v28 = rlx_exchange(v27, 2u);
  const u32 v29 = rlx_min_of_u32_i32(v27, v28);
  const u32 v30 = rlx_exchange(v29, 4u);
  const u32 v31 = rlx_min_of_u32_i32(v29, v30);
  const u32 v32 = rlx_exchange(v31, 8u);
  const u32 v33 = rlx_min_of_u32_i32(v31, v32);
  const u32 v34 = rlx_exchange(v33, 16u);
  const u32 v35 = rlx_min_of_u32_i32(v33, v34);
  if (rlx_thread() == 0u) {
    const u64 v36 = (u64)v35;
    m1[line1] = v36;
  }
}

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
RLX_FN u32 rlx_u32_of_f32(f32 x) { return __float_as_uint(x); }
RLX_FN f32 rlx_f32_of_u32(u32 x) { return __uint_as_float(x); }
RLX_FN f32 rlx_f32_of_bf16(u16 half_word) { return rlx_f32_of_u32((u32)half_word << 16); }

extern "C" __global__ void __launch_bounds__(256) cast_95ee50e70b54(const u16* m0, f32* m1) {
  const u32 i = rlx_group() * 256u + rlx_thread();
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

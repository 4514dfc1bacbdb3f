// What HIPRTC has before a source, for clang alone: words, the places of threads, exchanges of the wave, and mathematics by name.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

struct uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };

struct RlxThread { __device__ operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); } };
struct RlxGroup { __device__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_x(); } };
static const __device__ struct { RlxThread x; } threadIdx = {};
static const __device__ struct { RlxGroup x; } blockIdx = {};

static __device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

static __device__ inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static __device__ inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static __device__ inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static __device__ inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

static __device__ inline unsigned atomicMin(unsigned* word, unsigned x) {
  return __hip_atomic_fetch_min(word, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <class T> static __device__ inline T __shfl_xor(T x, int distance) {
  struct Words { int each[sizeof(T) / 4]; } words = __builtin_bit_cast(Words, x);
  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  for (unsigned i = 0; i < sizeof(T) / 4; i++) {
    words.each[i] = __builtin_amdgcn_ds_bpermute(int((lane ^ unsigned(distance)) << 2), words.each[i]);
  }
  return __builtin_bit_cast(T, words);
}

// Declared and not defined: ROCm's library of functions is not here, and the compiler leaves a call.
#define RLX_OF_ONE(name) __device__ float name(float); __device__ double name(double);
#define RLX_OF_TWO(name) __device__ float name(float, float); __device__ double name(double, double);
RLX_OF_ONE(exp) RLX_OF_ONE(exp2) RLX_OF_ONE(expm1) RLX_OF_ONE(log) RLX_OF_ONE(log2) RLX_OF_ONE(log10) RLX_OF_ONE(log1p)
RLX_OF_ONE(sin) RLX_OF_ONE(cos) RLX_OF_ONE(tan) RLX_OF_ONE(asin) RLX_OF_ONE(acos) RLX_OF_ONE(atan) RLX_OF_ONE(sinh)
RLX_OF_ONE(cosh) RLX_OF_ONE(tanh) RLX_OF_ONE(asinh) RLX_OF_ONE(acosh) RLX_OF_ONE(atanh) RLX_OF_ONE(erf) RLX_OF_ONE(erfc)
RLX_OF_ONE(cbrt) RLX_OF_ONE(rsqrt) RLX_OF_ONE(sqrt) RLX_OF_ONE(floor) RLX_OF_ONE(ceil) RLX_OF_ONE(trunc) RLX_OF_ONE(rint)
RLX_OF_ONE(fabs)
RLX_OF_TWO(pow) RLX_OF_TWO(atan2) RLX_OF_TWO(hypot) RLX_OF_TWO(fmod) RLX_OF_TWO(copysign) RLX_OF_TWO(fmin) RLX_OF_TWO(fmax)
__device__ float fma(float, float, float);
__device__ double fma(double, double, double);

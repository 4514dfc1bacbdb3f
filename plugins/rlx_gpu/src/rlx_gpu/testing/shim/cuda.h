// CUDA C, and HIP, as C++: what their compilers know without a header.
#pragma once
#include "functions.h"
#include "group.h"
#include "warpgroups.h"
#include "words.h"

namespace cuda_functions {
RLX_SHIM_UNARY(RLX_SHIM_UNARY_F32)
RLX_SHIM_UNARY(RLX_SHIM_UNARY_F64)
RLX_SHIM_BINARY(RLX_SHIM_BINARY_F32)
RLX_SHIM_BINARY(RLX_SHIM_BINARY_F64)
#define RLX_SHIM_CUDA_UNARY(F) F(expm1) F(log1p) F(erf) F(erfc) F(cbrt)
RLX_SHIM_CUDA_UNARY(RLX_SHIM_UNARY_F32)
RLX_SHIM_CUDA_UNARY(RLX_SHIM_UNARY_F64)
RLX_SHIM_BINARY_F32(hypot)
RLX_SHIM_BINARY_F64(hypot)
static inline float rsqrt(float x) { return 1.0f / sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
}  // namespace cuda_functions
using namespace cuda_functions;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ RLX_SHIM_SHARED
#define __launch_bounds__(...)
#define threadIdx shim::thread_place
#define blockIdx shim::group_place
#define blockDim shim::group_sizes
#define gridDim shim::grid_sizes

static inline void __syncthreads() { shim::wait(shim::AT_GROUP); }
static inline void __syncwarp(unsigned = 0xffffffffu) { shim::wait(shim::AT_SUBGROUP); }
template <class T> static inline T __shfl_xor(T x, unsigned distance) { return shim::exchange(x, shim::lane() ^ distance); }
template <class T> static inline T __shfl_xor_sync(unsigned, T x, unsigned distance) { return __shfl_xor(x, distance); }
template <class T> static inline T __shfl_sync(unsigned, T x, unsigned lane) { return shim::exchange(x, lane % shim::SUBGROUP); }

static inline unsigned atomicMin(unsigned* at, unsigned value) {
  const unsigned before = *at;
  if (value < before) *at = value;
  return before;
}

static inline unsigned long long __cvta_generic_to_shared(const void* place) { return shim::address_in_given(place); }

static inline unsigned __float_as_uint(float x) { return shim::u32_of_f32(x); }
static inline float __uint_as_float(unsigned x) { return shim::f32_of_u32(x); }
static inline long long __double_as_longlong(double x) { return shim::bits_of<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim::bits_of<double>(x); }

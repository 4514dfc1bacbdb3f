// The functions of f32 and f64 that GPU languages share, by the C library's of the same names; and bits taken for others.
#pragma once

namespace shim {
template <class To, class From> static inline To bits_of(From x) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To found;
  __builtin_memcpy(&found, &x, sizeof(To));
  return found;
}
static inline unsigned u32_of_f32(float x) { return bits_of<unsigned>(x); }
static inline float f32_of_u32(unsigned x) { return bits_of<float>(x); }
}  // namespace shim

#define RLX_SHIM_UNARY(F)                                                                                          \
  F(exp) F(exp2) F(log) F(log2) F(log10) F(sin) F(cos) F(tan) F(asin) F(acos) F(atan) F(sinh) F(cosh) F(tanh)      \
  F(asinh) F(acosh) F(atanh) F(sqrt) F(fabs) F(floor) F(ceil) F(trunc) F(rint)
#define RLX_SHIM_BINARY(F) F(pow) F(atan2) F(fmod) F(copysign)

#define RLX_SHIM_UNARY_F32(name) static inline float name(float x) { return __builtin_##name##f(x); }
#define RLX_SHIM_UNARY_F64(name) static inline double name(double x) { return __builtin_##name(x); }
#define RLX_SHIM_BINARY_F32(name) static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
#define RLX_SHIM_BINARY_F64(name) static inline double name(double x, double y) { return __builtin_##name(x, y); }

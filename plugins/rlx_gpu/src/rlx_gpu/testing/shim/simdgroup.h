// Apple's matrices of 8 by 8 floats, of which each lane of a simdgroup has two neighbours of a row.
#pragma once
#include "functions.h"
#include "group.h"

namespace shim {

// Of a matrix that nobody has filled every element is NaN.
struct Matrix {
  float of[2];
  Matrix() { __builtin_memset(of, 0xff, sizeof of); }
  float* thread_elements() { return of; }
};

static inline u32 row_of(u32 lane) { return (lane >> 4 & 1) << 2 | (lane >> 1 & 3); }
static inline u32 column_of(u32 lane) { return (lane >> 3 & 1) << 2 | (lane & 1) << 1; }
static inline u32 owner(u32 row, u32 column) {
  for (u32 i = 0; i < SUBGROUP; ++i) if (row_of(i) == row && column_of(i) == column / 2 * 2) return i;
  __builtin_trap();
}

// Each product is added exactly and the sum rounded, along the depth in order.
static inline Matrix multiplied(const Matrix& a, const Matrix& b, const Matrix& c) {
  struct Factors { Matrix a, b; };
  const Lanes<Factors> all = gathered(Factors{a, b});
  const u32 row = row_of(lane()), column = column_of(lane());
  Matrix sums = c;
  for (u32 k = 0; k < 8; ++k) {
    const float left = all.of[owner(row, k)].a.of[k % 2];
    for (u32 i = 0; i < 2; ++i) sums.of[i] = __builtin_fmaf(left, all.of[owner(k, column)].b.of[i], sums.of[i]);
  }
  return sums;
}

}  // namespace shim

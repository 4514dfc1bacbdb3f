// Words that are moved at once.
#pragma once
#include "group.h"

struct alignas(8) uint2 {
  shim::u32 x, y;
  uint2() {}
  uint2(shim::u32 x, shim::u32 y) : x(x), y(y) {}
  uint2(const uint2& other) { *this = other; }
  uint2& operator=(const uint2& other) {
    shim::expect_aligned(this, 8), shim::expect_aligned(&other, 8);
    x = other.x, y = other.y;
    return *this;
  }
};
struct alignas(16) uint4 {
  shim::u32 x, y, z, w;
  uint4() {}
  uint4(shim::u32 x, shim::u32 y, shim::u32 z, shim::u32 w) : x(x), y(y), z(z), w(w) {}
  uint4(const uint4& other) { *this = other; }
  uint4& operator=(const uint4& other) {
    shim::expect_aligned(this, 16), shim::expect_aligned(&other, 16);
    x = other.x, y = other.y, z = other.z, w = other.w;
    return *this;
  }
};

// NVIDIA's instructions of a subgroup on matrices, and copies that happen behind a kernel's back, as the PTX ISA describes them.
#pragma once
#include "functions.h"
#include "group.h"

namespace shim {

// ldmatrix.x4: lane i names row i % 8 of matrix i / 8; a thread gets two neighbours of row lane / 4 of each.
static inline void blocks(u32* words, const unsigned short* row, bool is_transposed) {
  expect_aligned(row, 16);
  const Lanes<const unsigned short*> rows = gathered(row);
  const u32 line = lane() / 4, place = lane() % 4 * 2;
  for (u32 i = 0; i < 4; ++i) {
    u32 pair[2];
    for (u32 j = 0; j < 2; ++j) {
      pair[j] = is_transposed ? rows.of[8 * i + place + j][line] : rows.of[8 * i + line][place + j];
    }
    words[i] = pair[0] | pair[1] << 16;
  }
}

static inline float f32_of(u32 half_word, bool is_bf16) {
  if (is_bf16) return f32_of_u32(half_word << 16);
  const u32 sign = (half_word & 0x8000u) << 16, size = half_word & 0x7fffu;
  if (size < 0x400u) return f32_of_u32(u32_of_f32((float)size * 0x1p-24f) | sign);
  if (size >= 0x7c00u) return f32_of_u32(0x7f800000u | (size & 0x3ffu) << 13 | sign);
  return f32_of_u32(((size << 13) + 0x38000000u) | sign);
}

// mma.m16n8k16: of A a lane has rows g and g + 8, of B column g, of both the depths 2t, 2t + 1, 2t + 8 and 2t + 9; its sums are in
// rows g and g + 8 and columns 2t and 2t + 1, where g = lane / 4 and t = lane % 4. Products are exact; f32 adds them up in order.
static inline void multiply(float* sums, const u32* a, const u32* b, bool is_bf16) {
  struct Words { u32 a[4], b[2]; } mine;
  for (u32 i = 0; i < 4; ++i) mine.a[i] = a[i];
  for (u32 i = 0; i < 2; ++i) mine.b[i] = b[i];
  const Lanes<Words> all = gathered(mine);
  const u32 g = lane() / 4, t = lane() % 4;
  for (u32 k = 0; k < 16; ++k) {
    const u32 owner = k % 8 / 2, word = k / 8, shift = k % 2 * 16;
    float left[2], right[2];
    for (u32 i = 0; i < 2; ++i) {
      left[i] = f32_of(all.of[4 * g + owner].a[i + 2 * word] >> shift & 0xffffu, is_bf16);
      right[i] = f32_of(all.of[4 * (2 * t + i) + owner].b[word] >> shift & 0xffffu, is_bf16);
    }
    for (u32 i = 0; i < 4; ++i) sums[i] = __builtin_fmaf(left[i / 2], right[i % 2], sums[i]);
  }
}

// mma.m16n8k8 of TF32: of A a lane has rows g and g + 8, of B column g, of both the depths t and t + 4; what lies below ten bits of
// mantissa a kernel has rounded away.
static inline void multiply_tf32(float* sums, const u32* a, const u32* b) {
  struct Words { u32 a[4], b[2]; } mine;
  for (u32 i = 0; i < 4; ++i) mine.a[i] = a[i];
  for (u32 i = 0; i < 2; ++i) mine.b[i] = b[i];
  const Lanes<Words> all = gathered(mine);
  const u32 g = lane() / 4, t = lane() % 4;
  for (u32 k = 0; k < 8; ++k) {
    const u32 owner = k % 4, word = k / 4;
    for (u32 i = 0; i < 4; ++i) {
      const u32 left = all.of[4 * g + owner].a[i / 2 + 2 * word], right = all.of[4 * (2 * t + i % 2) + owner].b[word];
      if ((left | right) & 0x1fffu) __builtin_trap();
      sums[i] = __builtin_fmaf(f32_of_u32(left), f32_of_u32(right), sums[i]);
    }
  }
}

// cvt.rna.tf32: to the nearest, ties away from zero; NaN has all bits that are kept.
static inline u32 tf32(float x) {
  const u32 word = u32_of_f32(x);
  return (word & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : word + 0x1000u & ~0x1fffu;
}

// cp.async: what is copied is there no sooner than somebody waits for it.
constexpr u32 MOST_COPIES = 128;
struct Copy { void* to; const void* from; u32 nbytes, ends; };
static Copy copies[MOST_THREADS][MOST_COPIES];
static u32 copied[MOST_THREADS], ended[MOST_THREADS];

static inline void copy_ahead(void* to, const void* from, u32 nbytes) {
  expect_aligned(to, 16), expect_aligned(from, 16), expect_shared(to, 16);
  if (copied[current] == MOST_COPIES) __builtin_trap();
  copies[current][copied[current]++] = Copy{to, from, nbytes, ended[current]};
}

static inline void await_copies(u32 but) {
  u32 kept = 0;
  for (u32 i = 0; i < copied[current]; ++i) {
    const Copy each = copies[current][i];
    if (each.ends + but >= ended[current]) {
      copies[current][kept++] = each;
      continue;
    }
    __builtin_memset(each.to, 0, 16);
    __builtin_memcpy(each.to, each.from, each.nbytes);
  }
  copied[current] = kept;
}

}  // namespace shim

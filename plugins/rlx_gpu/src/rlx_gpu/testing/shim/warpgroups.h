// NVIDIA's products of a warpgroup from shared memory (wgmma), as the PTX ISA describes them. The unit multiplies behind the threads'
// back: here when somebody waits, as late as can be. Until then its sums are NaN, and its factors must stay as they are. It sees
// what threads wrote only once whoever wrote it has passed fence.proxy.async.
#pragma once
#include "matrices.h"

namespace shim {

typedef unsigned short u16;

constexpr u32 WARPGROUP = 128;
constexpr u32 UNIT_DEPTH = 16;
constexpr u32 FIRST_ADDRESS = 1024;  // what lies before is the system's
constexpr u32 MOST_GIVEN = 227 << 10;
constexpr u32 MOST_PRODUCTS = 64;
constexpr u32 MOST_SUMS = 128;
constexpr u32 UNKNOWN_SUM = 0x7f90dead;  // a NaN that no arithmetic leaves as it is

static inline u16* given() { return (u16*)launch->given; }

// The address of what a launch gave its groups.
static inline u64 address_in_given(const void* place) {
  const u64 at = (u64)place - (u64)launch->given;
  if (at >= launch->given_nbytes) fail(NOT_SHARED);
  return FIRST_ADDRESS + at;
}

// ---- what was written and is not there for the unit yet: by whom, an element of two bytes each

alignas(8) static u16 noticed[MOST_GIVEN / 2];
static u16 writers[MOST_GIVEN / 2];
static bool is_hidden[MOST_GIVEN / 16];  // whether some of 16 bytes are

// What differs since the last time was written by the current thread.
static void notice_writes() {
  const u64* const now = (const u64*)launch->given;
  u64* const before = (u64*)noticed;
  for (u32 word = 0; word < launch->given_nbytes / 8; ++word) {
    if (now[word] == before[word]) continue;
    for (u32 i = 4 * word; i < 4 * word + 4; ++i) if (given()[i] != noticed[i]) writers[i] = (u16)(current + 1);
    before[word] = now[word];
    is_hidden[word / 2] = true;
  }
}

// fence.proxy.async
static inline void show_units() {
  notice_writes();
  for (u32 run = 0; run < launch->given_nbytes / 16; ++run) {
    if (!is_hidden[run]) continue;
    is_hidden[run] = false;
    for (u32 i = 8 * run; i < 8 * run + 8; ++i) {
      if (writers[i] == current + 1) writers[i] = 0;
      if (writers[i]) is_hidden[run] = true;
    }
  }
}

// ---- factors

// A matrix under a descriptor: "Matrix Descriptor Format", "Shared Memory Matrix Layout" and "Strides" of the PTX ISA.
struct Matrix {
  u32 start, leading, stride;
  u32 width;        // bytes of a row within which runs of 16 are exchanged; 16 where they are not
  bool is_across;   // whether neighbours are so along M or N, and not along K
};

static inline Matrix matrix_of(u64 word, bool is_across) {
  if (word & ~0xc00e3fff3fff3fffull || word >> 49 & 7) fail(BAD_DESCRIPTOR);  // a pattern that starts elsewhere is nobody's
  const u32 widths[4] = {16, 128, 64, 32};
  const u32 start = (u32)(word & 0x3fff) << 4, leading = (u32)(word >> 16 & 0x3fff) << 4, stride = (u32)(word >> 32 & 0x3fff) << 4;
  return Matrix{start, leading, stride, widths[word >> 62], is_across};
}

// The address of the element of a row of A or column of B at a depth.
static inline u32 address_of(const Matrix& m, u32 line, u32 deep) {
  u32 at = m.start;
  if (m.is_across) {
    const u32 size = m.width / 2;
    const u32 next = m.width == 16 ? m.stride : m.leading, deeper = m.width == 16 ? m.leading : m.stride;
    at += line / size * next + line % size * 2 + deep / 8 * deeper + deep % 8 * m.width;
  } else {
    at += line / 8 * m.stride + line % 8 * m.width;
    at += m.width == 16 ? deep / 8 * m.leading + deep % 8 * 2 : deep * 2;
  }
  return at ^ at / 128 % (m.width / 16) * 16;
}

static inline u32 element(const Matrix& m, u32 line, u32 deep, Fault hidden) {
  const u64 at = (u64)address_of(m, line, deep) - FIRST_ADDRESS;
  if (at >= launch->given_nbytes) fail(NOT_SHARED);
  if (writers[at / 2]) fail(hidden);
  return given()[at / 2];
}

// ---- products

struct Product { u64 a, b; u32 columns, group, digest; bool is_bf16, is_a_across, is_b_across; };

// What a thread has asked for and not waited for, in order.
struct Asked {
  Product products[MOST_PRODUCTS];
  u32 count, groups;  // groups: how many were closed
  float* sums;
  float held[MOST_SUMS];  // what the unit has of the sums
  u32 held_count;
  bool is_fenced;
  u32 said;  // of everything that it asked for, for others of the warpgroup to have asked for, too
};
static Asked asked[MOST_THREADS];

static inline void say(Asked& mine, u64 what) { mine.said = (mine.said ^ (u32)what ^ (u32)(what >> 32)) * 16777619u + 1; }

// A thread's part of a product: rows g and g + 8 of its subgroup's 16, columns 2t and 2t + 1 of every eight, where g = lane / 4 and
// t = lane % 4. Gives a number that is another one if a factor is.
static u32 multiplied(const Product& p, float* sums, Fault hidden) {
  const Matrix a = matrix_of(p.a, p.is_a_across), b = matrix_of(p.b, p.is_b_across);
  const u32 row = current % WARPGROUP / SUBGROUP * 16 + lane() / 4;
  float left[2][UNIT_DEPTH], right[UNIT_DEPTH];
  u32 digest = 0;
  const auto read = [&](const Matrix& m, u32 line, u32 k) {
    const u32 bits = element(m, line, k, hidden);
    digest = (digest ^ bits) * 16777619u + 1;
    return f32_of(bits, p.is_bf16);
  };
  for (u32 k = 0; k < 2 * UNIT_DEPTH; ++k) left[k / UNIT_DEPTH][k % UNIT_DEPTH] = read(a, row + k / UNIT_DEPTH * 8, k % UNIT_DEPTH);
  for (u32 i = 0; i < p.columns / 4; ++i) {
    for (u32 k = 0; k < UNIT_DEPTH; ++k) right[k] = read(b, i / 2 * 8 + lane() % 4 * 2 + i % 2, k);
    if (!sums) continue;
    for (u32 r = 0; r < 2; ++r) {
      float& sum = sums[i / 2 * 4 + r * 2 + i % 2];
      for (u32 k = 0; k < UNIT_DEPTH; ++k) sum = __builtin_fmaf(left[r][k], right[k], sum);
    }
  }
  return digest;
}

static inline bool are_unknown(const float* sums, u32 count) {
  for (u32 i = 0; i < count; ++i) if (u32_of_f32(sums[i]) != UNKNOWN_SUM) return false;
  return true;
}

// wgmma.fence: what threads did to the sums is there for the unit.
static inline void products_begin(float* sums, u32 count) {
  Asked& mine = asked[current];
  say(mine, 1);
  mine.is_fenced = true;
  if (mine.count) return;
  mine.sums = sums, mine.held_count = count;
  __builtin_memcpy(mine.held, sums, count * sizeof(float));
}

// wgmma.mma_async
static inline void multiply_ahead(float* sums, u32 columns, u64 a, u64 b, bool is_bf16, bool is_a_across, bool is_b_across) {
  struct Words { u64 a, b; };
  const Lanes<Words> all = gathered(Words{a, b});
  for (u32 i = 0; i < SUBGROUP; ++i) if (all.of[i].a != a || all.of[i].b != b) fail(BAD_DESCRIPTOR);
  Asked& mine = asked[current];
  say(mine, a), say(mine, b), say(mine, columns * 8 + is_bf16 * 4 + is_a_across * 2 + is_b_across);
  if (!mine.is_fenced || sums != mine.sums || columns / 2 != mine.held_count) fail(UNFENCED_SUMS);
  const bool is_same = mine.count ? are_unknown(sums, columns / 2) : !__builtin_memcmp(sums, mine.held, columns / 2 * sizeof(float));
  if (!is_same) fail(UNFENCED_SUMS);
  if (mine.count == MOST_PRODUCTS) __builtin_trap();
  Product& p = mine.products[mine.count++] = Product{a, b, columns, mine.groups, 0, is_bf16, is_a_across, is_b_across};
  p.digest = multiplied(p, nullptr, HIDDEN_FACTOR);
  for (u32 i = 0; i < columns / 2; ++i) __builtin_memcpy(&sums[i], &UNKNOWN_SUM, sizeof(float));
}

// wgmma.commit_group
static inline void products_end() {
  say(asked[current], 2);
  ++asked[current].groups;
}

// wgmma.wait_group
static inline void await_products(u32 but) {
  Asked& mine = asked[current];
  say(mine, 3);
  mine.is_fenced = false;
  u32 done = 0;
  for (; done < mine.count && mine.products[done].group + but < mine.groups; ++done) {
    const Product& p = mine.products[done];
    if (multiplied(p, mine.held, CHANGED_FACTOR) != p.digest) fail(CHANGED_FACTOR);
  }
  if (!done) return;
  mine.count -= done;
  for (u32 i = 0; i < mine.count; ++i) mine.products[i] = mine.products[i + done];
  if (mine.count) return;
  if (!are_unknown(mine.sums, mine.held_count)) fail(UNFENCED_SUMS);
  __builtin_memcpy(mine.sums, mine.held, mine.held_count * sizeof(float));
}

// ---- groups

static void group_starts() {
  __builtin_memcpy(noticed, launch->given, launch->given_nbytes);
  __builtin_memset(writers, 0, sizeof(writers));
  __builtin_memset(is_hidden, 0, sizeof(is_hidden));
  for (u32 i = 0; i < launch->group_size; ++i) asked[i].count = asked[i].groups = asked[i].said = asked[i].is_fenced = 0;
}

static void group_ends() {
  for (current = 0; current < launch->group_size && !launch->fault; ++current) {
    if (asked[current].said != asked[current / WARPGROUP * WARPGROUP].said) note(WARPGROUP_DIVERGES);
    else if (asked[current].count) note(NOT_AWAITED);
  }
}

static const bool is_watched = (watch = Watch{group_starts, notice_writes, group_ends}, true);

}  // namespace shim

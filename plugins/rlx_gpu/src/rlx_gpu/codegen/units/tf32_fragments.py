"""Factors of f32 for NVIDIA's tensor cores: rounded to TF32, ten bits of mantissa, when they are loaded from shared memory.

`mma.m16n8k8` has depths t and t + 4 of a row in a thread. The numbering of depths is arbitrary if both factors agree: here
these are the depths 2t and 2t + 1, the columns of a sum in the same thread. So sums can be the left factor of another product
without an exchange, as those of two bytes are.
"""

from __future__ import annotations

_LANE = "const u32 g = rlx_thread() % 32u / 4u, t = rlx_thread() % 4u * 2u;"


def brought_as_tf32(name: str, into: str) -> str:
    """The function that brings a matrix, for tiles of f32: its `_transposed` has rows of the matrix in columns of the tile."""
    is_transposed = name.endswith("_transposed")
    row, column = ("1u", "step") if is_transposed else ("step", "1u")
    inner, side = ("t", "lhs") if into == "rlx_lhs" else ("g", "rhs")
    outer = "g" if inner == "t" else "t"
    return f"""RLX_FN void {name}({into}& matrix, const f32* tile, u32 step) {{
  {_LANE}
  rlx_bring_tf32_{side}(matrix.words, tile + {outer} * {row} + {inner} * {column}, {row}, {column});
}}"""


TF32_FRAGMENTS = {
    "rlx_tf32": """
RLX_FN u32 rlx_tf32(f32 x) {
  u32 word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return word;
}""",
    # Two products of 16 by 8 by 8 follow one another along the depth, for each half of the columns.
    "rlx_bring_tf32_lhs": """
RLX_FN void rlx_bring_tf32_lhs(u32* words, const f32* place, u32 down, u32 deep) {
  RLX_UNROLL for (u32 i = 0u; i < 8u; i += 1u) {
    words[i] = rlx_tf32(place[i % 2u * 8u * down + (i / 2u % 2u + i / 4u * 8u) * deep]);
  }
}""",
    "rlx_bring_tf32_rhs": """
RLX_FN void rlx_bring_tf32_rhs(u32* words, const f32* place, u32 deep, u32 across) {
  RLX_UNROLL for (u32 i = 0u; i < 8u; i += 1u) {
    words[i] = rlx_tf32(place[(i % 2u + i / 2u % 2u * 8u) * deep + i / 4u * 8u * across]);
  }
}""",
    "rlx_multiply_tf32": """
RLX_FN void rlx_multiply_tf32(f32* sums, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
    "{%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}""",
    "rlx_multiply_f32": """
RLX_FN void rlx_multiply_f32(rlx_sums& sums, const rlx_lhs& a, const rlx_rhs& b) {
  RLX_UNROLL for (u32 i = 0u; i < 2u; i += 1u) {
    RLX_UNROLL for (u32 k = 0u; k < 2u; k += 1u) {
      rlx_multiply_tf32(sums.each + 4u * i, a.words + 4u * k, b.words + 4u * i + 2u * k);
    }
  }
}""",
    "rlx_lhs_of_sums_f32": """
RLX_FN void rlx_lhs_of_sums_f32(rlx_lhs& matrix, const rlx_sums& sums) {
  RLX_UNROLL for (u32 i = 0u; i < 8u; i += 1u) {
    matrix.words[i] = rlx_tf32(sums.each[i / 4u * 4u + i % 2u * 2u + i / 2u % 2u]);
  }
}""",
}
"""The prelude's functions by name."""

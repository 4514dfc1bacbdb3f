"""Apple's 8 by 8 matrices, distributed over the 32 threads of a simdgroup: the prelude of `matrix_units` for them.

Factors are loaded in their storage dtype and converted to f32, exactly, for the multiplication: one instruction serves f32, f16
and bf16, the last without the type that older systems do not have. The assignment of elements to threads is not specified;
every Apple GPU with such matrices has used the same one (decision 0047).
"""

from __future__ import annotations

from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_gpu.codegen.units.matrix_units import MatrixUnit

_PLACE = "rlx_lane_row(rlx_lane) * ({row}) + rlx_lane_column(rlx_lane) * ({column})"


def _bring(name: str) -> dict[str, str]:
    """Rows of a matrix from rows of a tile, or from its columns."""
    along, across = _PLACE.format(row="step", column="1u"), _PLACE.format(row="1u", column="step")
    return {
        name: f"#define {name}(matrix, tile, step) rlx_bring(matrix, (tile) + {along}, 1u)",
        f"{name}_transposed": f"#define {name}_transposed(matrix, tile, step) rlx_bring(matrix, (tile) + {across}, step)",
    }


def _of_dtype(dtype: DType) -> dict[str, str]:
    """Products of factors of a dtype, and sums rounded to it as the left factor of another product."""
    word = "u32" if dtype is f32 else dtype.name
    multiply, rounded = f"rlx_multiply_{dtype}", f"rlx_lhs_of_sums_{dtype}"
    return {
        multiply: f"""
RLX_FN void {multiply}(thread rlx_sums& sums, const thread rlx_lhs& a, const thread rlx_rhs& b) {{
  simdgroup_float8x8 left, right, sum;
  RLX_UNROLL for (u32 i = 0u; i < 2u; i += 1u) {{
    left.thread_elements()[i] = rlx_f32_of_{word}(a.words[i]);
    right.thread_elements()[i] = rlx_f32_of_{word}(b.words[i]);
    sum.thread_elements()[i] = sums.each[i];
  }}
  simdgroup_multiply_accumulate(sum, left, right, sum);
  RLX_UNROLL for (u32 i = 0u; i < 2u; i += 1u) {{ sums.each[i] = sum.thread_elements()[i]; }}
}}""",
        rounded: f"""
RLX_FN void {rounded}(thread rlx_lhs& matrix, const thread rlx_sums& sums) {{
  RLX_UNROLL for (u32 i = 0u; i < 2u; i += 1u) {{ matrix.words[i] = rlx_{word}_of_f32(sums.each[i]); }}
}}""",
    }


METAL_UNIT = MatrixUnit(
    dtypes=frozenset((f32, f16, bf16)),
    size=8,
    threads=32,
    pairs=1,
    rows=1,
    distances=(1, 8),
    tile=64,
    stages=2,
    fragments={
        "rlx_lhs": "struct rlx_lhs { u32 words[2]; };",
        "rlx_rhs": "struct rlx_rhs { u32 words[2]; };",
        "rlx_sums": "struct rlx_sums { f32 each[2]; };",
        "rlx_word": """
RLX_FN u32 rlx_word(u16 x) { return x; }
RLX_FN u32 rlx_word(f32 x) { return rlx_u32_of_f32(x); }""",
        "rlx_bring": """
template <class M, class P> RLX_FN void rlx_bring(thread M& matrix, P place, u32 apart) {
  matrix.words[0] = rlx_word(place[0]);
  matrix.words[1] = rlx_word(place[apart]);
}""",
        # Bits 4, 2 and 1 of a thread's number in its simdgroup are its row; of bits 3 and 0 each is the half of half the columns.
        "rlx_lane": "#define rlx_lane (thread_in_group % 32u)",
        "rlx_lane_row": "RLX_FN u32 rlx_lane_row(u32 lane) { return lane / 16u * 4u + lane / 2u % 4u; }",
        "rlx_lane_column": "RLX_FN u32 rlx_lane_column(u32 lane) { return lane / 8u % 2u * 4u + lane % 2u * 2u; }",
        **_bring("rlx_bring_lhs"),
        **_bring("rlx_bring_rhs"),
        **_of_dtype(f32),
        **_of_dtype(f16),
        **_of_dtype(bf16),
        "rlx_sum_row": "#define rlx_sum_row(pair) rlx_lane_row(rlx_lane)",
        "rlx_sum_column": "#define rlx_sum_column(pair) rlx_lane_column(rlx_lane)",
        # Metal has no copies behind a kernel's back: each is there when the next barrier is passed.
        "rlx_copy_ahead": """
template <class To, class From> RLX_FN void rlx_copy_ahead(To to, From from, bool is_there) {
  uint4 words = uint4(0u, 0u, 0u, 0u);
  if (is_there) { words = *(const device uint4*)from; }
  *(threadgroup uint4*)to = words;
}""",
        "rlx_copies_end": "#define rlx_copies_end()",
        "rlx_await_copies": "template <u32 N> RLX_FN void rlx_await_copies() {}",
    },
)
"""Simdgroup matrices, from the family of GPUs on that began with the M1."""

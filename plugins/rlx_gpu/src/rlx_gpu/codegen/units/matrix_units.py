"""Matrix instructions whose operands are distributed over the threads of a subgroup, as a prelude spells them.

A kernel that uses them names no layout: matrices are `rlx_lhs`, `rlx_rhs` and `rlx_sums`, loaded from shared memory by
`rlx_bring_…` and multiplied by `rlx_multiply_…`; `rlx_sum_row` and `rlx_sum_column` return the position of a thread's element
of a sum. Another language is supported by another prelude.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field

from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.units.tf32_fragments import TF32_FRAGMENTS, brought_as_tf32


@frozen(kw_only=True)
class MatrixUnit:
    """A unit that multiplies `[size, size] @ [size, size]` with sums in f32.

    Attributes:
        dtypes: Dtypes of the factors.
        size: Rows, columns and depth of one instruction.
        threads: Threads of a subgroup, over which matrices are distributed.
        pairs: Pairs of neighbouring columns of the sums in a thread.
        rows: Number of their rows: pair `p` is in the thread's row `p % rows`.
        distances: Bits in which the lanes of threads that have the same rows differ, as exchanges take them.
        tile: Rows and columns of the largest tile that a group computes of a product.
        stages: Maximum number of steps along a product's depth that are prefetched.
        roomy_head: The head of a kernel whose threads may use the maximum number of registers; by default `GpuDialect.head`.
        fragments: The prelude's functions and types, by name.
    """

    dtypes: frozenset[DType]
    size: int
    threads: int
    pairs: int
    rows: int
    distances: tuple[int, ...]
    tile: int
    stages: int
    roomy_head: str | None = None
    fragments: Mapping[str, str] = field(eq=False)


_LANE = "const u32 lane = rlx_thread() % 32u;"

_ALONG = "lane % 16u * step + lane / 16u * 8u"
"""Start of a thread's eight elements, if the four blocks of a matrix follow one another down its rows."""

_ACROSS = "(lane % 8u + lane / 16u * 8u) * step + lane / 8u % 2u * 8u"
"""The same, if they follow one another along its rows."""


def _bring(name: str, into: str, place: str, blocks: str) -> dict[str, str]:
    return {
        name: f"""
RLX_FN void {name}({into}& matrix, const u16* tile, u32 step) {{
  {_LANE}
  {blocks}(matrix.words, tile + {place});
}}
{brought_as_tf32(name, into)}"""
    }


def _blocks(name: str, order: str) -> dict[str, str]:
    return {
        name: f"""
RLX_FN void {name}(u32* words, const u16* row) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{order}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
    : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}}"""
    }


def _multiply(dtype: DType) -> dict[str, str]:
    name = f"rlx_multiply_{dtype}"
    return {
        name: f"""
RLX_FN void {name}(rlx_sums& sums, const rlx_lhs& a, const rlx_rhs& b) {{
  RLX_UNROLL for (u32 i = 0u; i < 2u; i += 1u) {{
    f32* const s = sums.each + 4u * i;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
      "{{%0, %1, %2, %3}};" : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[2u * i]), "r"(b.words[2u * i + 1u]));
  }}
}}"""
    }


def _rounded(dtype: DType) -> dict[str, str]:
    """Sums as the left factor of another product: a thread has the same elements of both."""
    name = f"rlx_lhs_of_sums_{dtype}"
    return {
        name: f"""
RLX_FN void {name}(rlx_lhs& matrix, const rlx_sums& sums) {{
  RLX_UNROLL for (u32 i = 0u; i < 4u; i += 1u) {{
    asm("cvt.rn.{dtype}x2.f32 %0, %1, %2;" : "=r"(matrix.words[i]) : "f"(sums.each[2u * i + 1u]), "f"(sums.each[2u * i]));
  }}
}}"""
    }


CUDA_UNIT = MatrixUnit(
    dtypes=frozenset((f16, bf16)),
    size=16,
    threads=32,
    pairs=4,
    rows=2,
    distances=(1, 2),
    tile=128,
    stages=4,
    # Without the 1, ptxas may spill some bytes for the sake of one more group a multiprocessor.
    roomy_head='extern "C" __global__ void __launch_bounds__({size}, 1) {name}({arguments}) {{',
    # The PTX ISA, "Warp-level matrix instructions": two products of 16 by 8 by 16 are one of ours.
    fragments={
        # Factors of two bytes are in the first four.
        "rlx_lhs": "struct rlx_lhs { u32 words[8]; };",
        "rlx_rhs": "struct rlx_rhs { u32 words[8]; };",
        "rlx_sums": "struct rlx_sums { f32 each[8]; };",
        **TF32_FRAGMENTS,
        **_blocks("rlx_blocks", ""),
        **_blocks("rlx_blocks_transposed", ".trans"),
        **_bring("rlx_bring_lhs", "rlx_lhs", _ALONG, "rlx_blocks"),
        **_bring("rlx_bring_lhs_transposed", "rlx_lhs", _ACROSS, "rlx_blocks_transposed"),
        **_bring("rlx_bring_rhs", "rlx_rhs", _ALONG, "rlx_blocks_transposed"),
        **_bring("rlx_bring_rhs_transposed", "rlx_rhs", _ACROSS, "rlx_blocks"),
        **_multiply(f16),
        **_multiply(bf16),
        **_rounded(f16),
        **_rounded(bf16),
        "rlx_sum_row": f"""
RLX_FN u32 rlx_sum_row(u32 pair) {{ {_LANE} return lane / 4u + pair % 2u * 8u; }}""",
        "rlx_sum_column": f"""
RLX_FN u32 rlx_sum_column(u32 pair) {{ {_LANE} return lane % 4u * 2u + pair / 2u * 8u; }}""",
        "rlx_copy_ahead": """
template <class T> RLX_FN void rlx_copy_ahead(T* to, const T* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(is_there ? 16u : 0u) : "memory");
}""",
        "rlx_copies_end": """
RLX_FN void rlx_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }""",
        "rlx_await_copies": """
template <u32 N> RLX_FN void rlx_await_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }""",
    },
)
"""NVIDIA's tensor cores from compute capability 8.0 on."""

CUDA_TF32_UNIT = evolve(CUDA_UNIT, dtypes=CUDA_UNIT.dtypes | {f32})
"""The same for those who allow that factors of f32 are rounded to ten bits of mantissa."""

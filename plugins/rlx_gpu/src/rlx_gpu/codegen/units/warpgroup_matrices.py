"""Products of a warpgroup, four subgroups of 32 threads, whose factors are both in shared memory: wgmma, of sm_90a.

A unit reads a factor through a descriptor of its layout. Here factors have rows of 128 bytes, in which runs of 16 bytes are
swizzled to avoid bank conflicts of copies and of the unit: run `c` of row `r` is stored in place of run `c ^ r % 8`. The unit
works asynchronously: sums must not be accessed, and factors must not be changed, before a wait.

These instructions are specified in the PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from typing import Final

from rlx_core.ir.dtypes import DType, bf16, f16

COLUMNS: Final = 128
"""Columns of one instruction of a warpgroup; it has 64 rows and depth 16."""

PANEL: Final = 64
"""Elements of two bytes in a row of shared memory: a wider tile consists of several consecutive panels."""

_SUMS: Final = COLUMNS // 2
"""Sums of a thread: 64 rows by `COLUMNS` columns on 128 threads."""

_NAMES = ", ".join(f"%{i}" for i in range(_SUMS))

_ACCUMULATORS = ", ".join(f'"+f"(sums.each[{i}])' for i in range(_SUMS))
"""The sums as operands that are read and written, so that no compiler moves what uses them."""


def _multiply(dtype: DType) -> dict[str, str]:
    name = f"rlx_multiply_wide_{dtype}"
    return {
        name: f"""
template <u32 A_IS_ACROSS, u32 B_IS_ACROSS> RLX_FN void {name}(rlx_wide_sums& sums, u64 a, u64 b) {{
  asm volatile("{{ .reg .pred adds; setp.ne.b32 adds, 1, 0; "
    "wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.{dtype}.{dtype} {{{_NAMES}}}, %{_SUMS}, %{_SUMS + 1}, adds, 1, 1, "
    "%{_SUMS + 2}, %{_SUMS + 3}; }}" : {_ACCUMULATORS}
    : "l"(a), "l"(b), "n"(A_IS_ACROSS), "n"(B_IS_ACROSS));
}}"""
    }


WARPGROUP_FRAGMENTS = {
    "rlx_dynamic": "#define rlx_dynamic(name) extern __shared__ __align__(1024) u8 name[]",
    "rlx_wide_sums": f"struct rlx_wide_sums {{ f32 each[{_SUMS}]; }};",
    # Where an element of a panel of so many rows lies, and of the panels behind it.
    "rlx_exchanged_place": f"""
RLX_FN u32 rlx_exchanged_place(u32 row, u32 column, u32 rows) {{
  return (column / {PANEL}u * rows + row) * {PANEL}u + (column / 8u ^ row) % 8u * 8u + column % 8u;
}}""",
    # Eight rows are 1024 bytes, from which the next eight begin; `panel` is the bytes from a panel to the next.
    "rlx_factor": """
RLX_FN u64 rlx_factor(const u16* place, u32 panel) {
  const u64 start = __cvta_generic_to_shared(place), leading = panel, stride = 1024u;
  return (start & 0x3ffffu) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | (u64)1u << 62;
}""",
    # What threads wrote to shared memory, and copies that they waited for, is there for units.
    "rlx_show_units": """
RLX_FN void rlx_show_units() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }""",
    "rlx_products_begin": f"""
RLX_FN void rlx_products_begin(rlx_wide_sums& sums) {{
  asm volatile("wgmma.fence.sync.aligned;" : {_ACCUMULATORS} :: "memory");
}}""",
    **_multiply(f16),
    **_multiply(bf16),
    "rlx_products_end": """
RLX_FN void rlx_products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }""",
    "rlx_await_products": f"""
RLX_FN void rlx_await_products(rlx_wide_sums& sums) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {_ACCUMULATORS} :: "memory");
}}""",
}
"""The prelude's functions and types, by name."""

"""The form of a GPU language in C++: a header, and replacements of the few functions of its prelude that use assembly."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import evolve, field

from rlx_core.plugins.digest import sha256
from rlx_core.system.records import frozen
from rlx_gpu.codegen.c_family import F16_OF_F32, F32_OF_F16
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.units.warpgroup_matrices import COLUMNS

_HALVES = {
    name: text.replace("rlx_f32_of_u32", "shim::f32_of_u32").replace("rlx_u32_of_f32", "shim::u32_of_f32")
    for name, text in (("rlx_f32_of_f16", F32_OF_F16), ("rlx_f16_of_f32", F16_OF_F32))
}
"""Halves by their bits."""


_MATRICES = {
    "rlx_blocks": "RLX_FN void rlx_blocks(u32* words, const u16* row) { shim::blocks(words, row, false); }",
    "rlx_blocks_transposed": """
RLX_FN void rlx_blocks_transposed(u32* words, const u16* row) { shim::blocks(words, row, true); }""",
    **{
        f"rlx_multiply_{dtype}": f"""
RLX_FN void rlx_multiply_{dtype}(rlx_sums& sums, const rlx_lhs& a, const rlx_rhs& b) {{
  for (u32 i = 0u; i < 2u; i += 1u) {{ shim::multiply(sums.each + 4u * i, a.words, b.words + 2u * i, {is_bf16}); }}
}}"""
        for dtype, is_bf16 in (("f16", "false"), ("bf16", "true"))
    },
    **{
        f"rlx_lhs_of_sums_{dtype}": f"""
RLX_FN void rlx_lhs_of_sums_{dtype}(rlx_lhs& matrix, const rlx_sums& sums) {{
  for (u32 i = 0u; i < 4u; i += 1u) {{
    matrix.words[i] = (u32)rlx_{dtype}_of_f32(sums.each[2u * i]) | (u32)rlx_{dtype}_of_f32(sums.each[2u * i + 1u]) << 16;
  }}
}}"""  # the function that rounds is there, because results are stored by it
        for dtype in ("f16", "bf16")
    },
    "rlx_copy_ahead": """
template <class T> RLX_FN void rlx_copy_ahead(T* to, const T* from, bool is_there) {
  shim::copy_ahead(to, from, is_there ? 16u : 0u);
}""",
    "rlx_tf32": "RLX_FN u32 rlx_tf32(f32 x) { return shim::tf32(x); }",
    "rlx_multiply_tf32": """
RLX_FN void rlx_multiply_tf32(f32* sums, const u32* a, const u32* b) { shim::multiply_tf32(sums, a, b); }""",
    "rlx_dynamic": "#define rlx_dynamic(name) u8* const name = (u8*)shim::launch->given",
    "rlx_show_units": "RLX_FN void rlx_show_units() { shim::show_units(); }",
    "rlx_products_begin": """
RLX_FN void rlx_products_begin(rlx_wide_sums& sums) { shim::products_begin(sums.each, sizeof(sums.each) / 4u); }""",
    **{
        f"rlx_multiply_wide_{dtype}": f"""
template <u32 A_IS_ACROSS, u32 B_IS_ACROSS> RLX_FN void rlx_multiply_wide_{dtype}(rlx_wide_sums& sums, u64 a, u64 b) {{
  shim::multiply_ahead(sums.each, {COLUMNS}u, a, b, {is_bf16}, A_IS_ACROSS, B_IS_ACROSS);
}}"""
        for dtype, is_bf16 in (("f16", "false"), ("bf16", "true"))
    },
    "rlx_products_end": "RLX_FN void rlx_products_end() { shim::products_end(); }",
    "rlx_await_products": "RLX_FN void rlx_await_products(rlx_wide_sums& sums) { shim::await_products(0u); }",
    "rlx_copies_end": "RLX_FN void rlx_copies_end() { shim::ended[shim::current] += 1u; }",
    "rlx_await_copies": "template <u32 N> RLX_FN void rlx_await_copies() { shim::await_copies(N); }",
}
"""Matrix instructions of a subgroup, and asynchronous copies."""


@frozen
class Dialect:
    """A language as C++.

    Attributes:
        language: The language of the sources.
        header: A header that sources are compiled with, in addition to this file's; empty where sources include it themselves.
        head: The start of a kernel, up to its name, which is the only group.
        replaced: Functions of the language's prelude by name → their replacements here.
        prelude: C++ in front of every source, with the definitions of the language that no header of this folder has. It may
            include those headers: `group.h` for threads, barriers and shared memory, `functions.h`, `words.h`.
        shared_nbytes: Memory that a group shares.
        most_shared_nbytes: The maximum with dynamic shared memory of a launch, where launches may have it.
    """

    language: GpuDialect
    header: str
    head: re.Pattern[str]
    replaced: Mapping[str, str] = field(factory=dict, eq=False)
    prelude: str = ""
    shared_nbytes: int = 32 << 10
    most_shared_nbytes: int = 0

    @property
    def identity(self) -> str:
        """The digest of the texts that become part of the C++; the other parts are headers, which the compiler's identity has."""
        return sha256([self.header, self.prelude, dict(self.replaced)])[:12]

    def as_cpp(self, source: str) -> tuple[str, tuple[str, ...]]:
        """A source as C++, and the names of its kernels."""
        for name, text in self.replaced.items():
            source = source.replace(self.language.fragments[name].strip(), text.strip())
        names: list[str] = []

        def begin(match: re.Match[str]) -> str:
            names.append(match[1])
            return f'#undef RLX_SHIM_SECTION\n#define RLX_SHIM_SECTION "rlx_shared_{len(names) - 1}"\n{match[0]}'

        body = self.head.sub(begin, source)
        include = (f'#include "{self.header}"\n' if self.header else "") + self.prelude
        entries = "".join(f"RLX_SHIM_ENTRY({name}, {number})\n" for number, name in enumerate(names))
        return f"{include}{body}\n{entries}", tuple(names)


CUDA_DIALECT = Dialect(
    CUDA,
    "cuda.h",
    re.compile(r'^extern "C" __global__ void (?:__launch_bounds__\(\d+(?:, 1)?\) )?(\w+)\(', re.M),
    {**_HALVES, **_MATRICES},
    shared_nbytes=48 << 10,
    most_shared_nbytes=227 << 10,
)

HIP_DIALECT = evolve(CUDA_DIALECT, language=HIP, replaced=_HALVES, shared_nbytes=64 << 10, most_shared_nbytes=0)

METAL_DIALECT = Dialect(
    METAL,
    "",
    re.compile(r"^(?:\[\[max_total_threads_per_threadgroup\(\d+\)\]\] )?kernel void (\w+)\(", re.M),
    {
        **_HALVES,
        "rlx_copy_ahead": """
template <class To, class From> RLX_FN void rlx_copy_ahead(To to, From from, bool is_there) {
  uint4 words = uint4(0u, 0u, 0u, 0u);
  if (is_there) { words = *(const uint4*)from; }
  *(uint4*)to = words;
}""",  # without `threadgroup`, which declares shared memory here
    },
)

DIALECTS: Mapping[str, Dialect] = {d.language.name: d for d in (CUDA_DIALECT, HIP_DIALECT, METAL_DIALECT)}
"""The dialects by the language's name."""

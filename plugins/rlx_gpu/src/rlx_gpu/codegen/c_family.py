"""The common parts of the preludes of the C-like languages."""

from __future__ import annotations

from rlx_core.codegen.faults import SITE_WORDS
from rlx_core.ir.dtypes import ALL, DType, f64
from rlx_gpu.codegen.languages import Builtin

REAL_DTYPES: frozenset[DType] = frozenset(d for d in ALL if not d.is_complex)
WITHOUT_F64 = REAL_DTYPES - {f64}

FRAGMENTS = {
    "rlx_f32_of_bf16": """
RLX_FN f32 rlx_f32_of_bf16(u16 half_word) { return rlx_f32_of_u32((u32)half_word << 16); }""",
    "rlx_bf16_of_f32": """
RLX_FN u16 rlx_bf16_of_f32(f32 x) {
  const u32 bits = rlx_u32_of_f32(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (u16)((bits >> 16) | 0x40u); }
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}""",
}
"""bfloat16 is the upper half of an f32, rounded to nearest even; a NaN stays one."""

F32_OF_F16 = """
RLX_FN f32 rlx_f32_of_f16(u16 half_word) {
  const u32 sign = (u32)(half_word & 0x8000u) << 16;
  const u32 size = half_word & 0x7fffu;
  if (size < 0x400u) { return rlx_f32_of_u32(rlx_u32_of_f32((f32)size * 0x1p-24f) | sign); }
  if (size >= 0x7c00u) { return rlx_f32_of_u32(0x7f800000u | ((size & 0x3ffu) << 13) | sign); }
  return rlx_f32_of_u32(((size << 13) + 0x38000000u) | sign);
}"""

F16_OF_F32 = """
RLX_FN u16 rlx_f16_of_f32(f32 x) {
  const u32 bits = rlx_u32_of_f32(x);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return (u16)(sign | 0x7e00u); }
  if (size >= 0x477ff000u) { return (u16)(sign | 0x7c00u); }
  if (size <= 0x33000000u) { return (u16)sign; }
  if (size < 0x38800000u) {
    const u32 whole = (size & 0x7fffffu) | 0x800000u;
    const u32 shift = 126u - (size >> 23);
    const u32 kept = whole >> shift;
    const u32 rest = whole & ((1u << shift) - 1u);
    const u32 tie = 1u << (shift - 1u);
    return (u16)(sign | (kept + (rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u)));
  }
  return (u16)(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
}"""
"""Halves by their bits, rounded to nearest even, for languages that have no type for them."""

_OF_TWO = frozenset(("pow", "atan2", "hypot"))


def builtins(**ulp: float) -> dict[str, Builtin]:
    """Rows of a language's functions, which are called like the ops: the error that is promised for each."""
    return {f"rlx.{n}": Builtin(f"{n}({'{0}, {1}' if n in _OF_TWO else '{0}'})", e) for n, e in ulp.items()}


def fault_fragment(words: str, least: str) -> str:
    """The function that reports an index outside; see `rlx_core.codegen.faults`.

    Args:
        words: The type of the words' address.
        least: The statement that lowers the word at `{0}` to `place` atomically.
    """
    return f"""
RLX_FN void rlx_fault({words} status, u32 site, u32 place, u64 index) {{
  {words} word = status + site * {SITE_WORDS}u;
  {least}
  for (u32 bit = 0u; bit < 64u; bit += 1u) {{
    word += 1;
    if (((index >> bit) & 1u) != 0u) {{ {least} }}
  }}
}}"""

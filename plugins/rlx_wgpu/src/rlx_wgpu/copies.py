"""A kernel for byte-granular copies within the heap: WebGPU copies only whole words, and not within one buffer."""

from __future__ import annotations

from typing import Final

from rlx_gpu.codegen.wgsl_prelude import words

COPY_GROUP: Final = 64
COPY_GROUPS: Final = 1024

_WORDS: Final = words(are_shared=False)

COPY: Final = f"""
{_WORDS["memory"]}
{_WORDS["rlx_word"]}
{_WORDS["rlx_set_word"]}
@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;

fn byte_at(at: u32) -> u32 {{ return (rlx_word(at >> 2u) >> ((at & 3u) * 8u)) & 0xffu; }}

// A thread owns whole words of the target; of the first and the last it keeps the bytes that are not copied to.
@compute @workgroup_size({COPY_GROUP}, 1, 1)
fn rlx_copy(@builtin(global_invocation_id) thread: vec3<u32>) {{
  let source: u32 = places[0].y;
  let to: u32 = places[0].z;
  let nbytes: u32 = places[0].w;
  let first: u32 = to >> 2u;
  let words: u32 = ((to & 3u) + nbytes + 3u) >> 2u;
  for (var i: u32 = thread.x; i < words; i += {COPY_GROUP * COPY_GROUPS}u) {{
    let start: u32 = (first + i) << 2u;
    if (start >= to && start + 4u <= to + nbytes && ((source - to) & 3u) == 0u) {{
      rlx_set_word(first + i, rlx_word((source + (start - to)) >> 2u));
      continue;
    }}
    var word: u32 = rlx_word(first + i);
    for (var k: u32 = 0u; k < 4u; k += 1u) {{
      let at: u32 = start + k;
      if (at >= to && at < to + nbytes) {{
        word = (word & ~(0xffu << (k * 8u))) | (byte_at(source + (at - to)) << (k * 8u));
      }}
    }}
    rlx_set_word(first + i, word);
  }}
}}
"""
"""The copy kernel; `places` contains a 0, the source offset, the target offset, and the size, in bytes."""

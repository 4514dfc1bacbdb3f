"""Functions that WGSL does not have: access to words, bits of floats, narrow floats, and 64-bit integers."""

from __future__ import annotations

from rlx_core.codegen.faults import SITE_WORDS

_PLAIN = {"kind": "u32", "word": "{0}[{1}]", "set": "{0}[{1}] = word;", "flip": "{0}[{1}] ^= bits;"}
_SHARED = {
    "kind": "atomic<u32>",
    "word": "atomicLoad(&{0}[{1}])",
    "set": "atomicStore(&{0}[{1}], word);",
    "flip": "atomicXor(&{0}[{1}], bits);",
}


def words(*, are_shared: bool, segments: int = 1, segment_nbytes: int = 0) -> dict[str, str]:
    """Return the functions that access memory.

    Args:
        are_shared: Whether several threads own parts of a word: then it is atomic, and no other thread changes the bits that an
            exclusive or changes.
        segments: Number of bindings over which memory is split. The upper bits of a word's number are then that of its binding;
            bindings 1 and 2 are other things.
        segment_nbytes: Capacity of a binding, a power of two; ignored for one binding.
    """
    table = _SHARED if are_shared else _PLAIN
    names = ["memory", *(f"memory_{n}" for n in range(1, segments))]
    bindings = [0, *range(3, 2 + segments)]

    def accessed(what: str, before: str = "") -> str:
        if segments == 1:
            return before + table[what].format(names[0], "at")
        bits = (segment_nbytes // 4).bit_length() - 1
        cases = [before + table[what].format(name, "within").rstrip(";") for name in names]
        *others, last = (
            f"{'default' if n == segments - 1 else f'case {n}u'}: {{ {case}; }}" for n, case in enumerate(cases)
        )
        return f"let within = at & {(1 << bits) - 1}u; switch (at >> {bits}u) {{ {' '.join([*others, last])} }}"

    return {
        "memory": "\n".join(
            f"@group(0) @binding({binding}) var<storage, read_write> {name}: array<{table['kind']}>;"
            for binding, name in zip(bindings, names, strict=True)
        ),
        "rlx_word": f"fn rlx_word(at: u32) -> u32 {{ {accessed('word', 'return ')}{';' * (segments == 1)} }}",
        "rlx_set_word": f"fn rlx_set_word(at: u32, word: u32) {{ {accessed('set')} }}",
        "rlx_flip_word": f"fn rlx_flip_word(at: u32, bits: u32) {{ {accessed('flip')} }}",
    }


def segmented(source: str, segments: int, segment_nbytes: int) -> str:
    """A module that was printed for memory in one binding, for memory in several."""
    for are_shared in (False, True):
        plain = words(are_shared=are_shared)
        if plain["memory"] in source:
            several = words(are_shared=are_shared, segments=segments, segment_nbytes=segment_nbytes)
            for name, text in plain.items():
                source = source.replace(text, several[name])
            return source
    raise AssertionError("a kernel has memory")


FRAGMENTS = {
    "rlx_set_byte": """
fn rlx_set_byte(buffer: u32, index: u32, byte: u32) {
  let at = (buffer + index) >> 2u;
  let shift = ((buffer + index) & 3u) * 8u;
  let old = (rlx_word(at) >> shift) & 0xffu;
  rlx_flip_word(at, (old ^ (byte & 0xffu)) << shift);
}""",
    "rlx_set_half": """
fn rlx_set_half(buffer: u32, index: u32, half_word: u32) {
  let at = (buffer + index) >> 1u;
  let shift = ((buffer + index) & 1u) * 16u;
  let old = (rlx_word(at) >> shift) & 0xffffu;
  rlx_flip_word(at, (old ^ (half_word & 0xffffu)) << shift);
}""",
    "rlx_byte": """
fn rlx_byte(buffer: u32, index: u32) -> u32 {
  let at = buffer + index;
  return (rlx_word(at >> 2u) >> ((at & 3u) * 8u)) & 0xffu;
}""",
    "rlx_half": """
fn rlx_half(buffer: u32, index: u32) -> u32 {
  let at = buffer + index;
  return (rlx_word(at >> 1u) >> ((at & 1u) * 16u)) & 0xffffu;
}""",
    "rlx_fault": f"""
@group(0) @binding(2) var<storage, read_write> status: array<atomic<u32>>;
fn rlx_fault(site: u32, place: u32, index: vec2<u32>) {{
  let first = site * {SITE_WORDS}u;
  atomicMin(&status[first], place);
  for (var bit: u32 = 0u; bit < 32u; bit += 1u) {{
    if (((index.x >> bit) & 1u) != 0u) {{ atomicMin(&status[first + 1u + bit], place); }}
    if (((index.y >> bit) & 1u) != 0u) {{ atomicMin(&status[first + 33u + bit], place); }}
  }}
}}""",
    "rlx_u32_of_f32": "fn rlx_u32_of_f32(x: f32) -> u32 { return bitcast<u32>(x); }",
    "rlx_f32_of_u32": "fn rlx_f32_of_u32(x: u32) -> f32 { return bitcast<f32>(x); }",
    # The first word of the uniform is 0, which a compiler cannot know.
    "rlx_opaque": "fn rlx_opaque(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ places[0].x); }",
    "rlx_isnan": "fn rlx_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "rlx_isnan2": "fn rlx_isnan2(x: f32, y: f32) -> bool { return rlx_isnan(x) || rlx_isnan(y); }",
    "rlx_copysign": """
fn rlx_copysign(size: f32, sign: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}""",
    "rlx_f32_of_bf16": "fn rlx_f32_of_bf16(half_word: u32) -> f32 { return bitcast<f32>(half_word << 16u); }",
    "rlx_bf16_of_f32": """
fn rlx_bf16_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}""",
    "rlx_f32_of_f16": "fn rlx_f32_of_f16(half_word: u32) -> f32 { return unpack2x16float(half_word).x; }",
    # By bits, because pack2x16float leaves open what becomes of numbers above 65504.
    "rlx_f16_of_f32": """
fn rlx_f16_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }
  if (size <= 0x33000000u) { return sign; }
  if (size < 0x38800000u) {
    let whole = (size & 0x7fffffu) | 0x800000u;
    let shift = 126u - (size >> 23u);
    let kept = whole >> shift;
    let rest = whole & ((1u << shift) - 1u);
    let tie = 1u << (shift - 1u);
    return sign | (kept + select(0u, 1u, rest > tie || (rest == tie && (kept & 1u) == 1u)));
  }
  return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}""",
    "rlx_add64": """
fn rlx_add64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let low = x.x + y.x;
  return vec2<u32>(low, x.y + y.y + select(0u, 1u, low < x.x));
}""",
    "rlx_sub64": """
fn rlx_sub64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x - y.x, x.y - y.y - select(0u, 1u, x.x < y.x));
}""",
    "rlx_neg64": "fn rlx_neg64(x: vec2<u32>) -> vec2<u32> { return rlx_sub64(vec2<u32>(0u, 0u), x); }",
    "rlx_mul64": """
fn rlx_mul64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let a = x.x & 0xffffu; let b = x.x >> 16u;
  let c = y.x & 0xffffu; let d = y.x >> 16u;
  let middle = ((a * c) >> 16u) + ((b * c) & 0xffffu) + a * d;
  let high = b * d + ((b * c) >> 16u) + (middle >> 16u);
  return vec2<u32>(x.x * y.x, high + x.x * y.y + x.y * y.x);
}""",
    "rlx_shl64": """
fn rlx_shl64(x: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
  let n = count.x & 63u;
  if (n == 0u) { return x; }
  if (n >= 32u) { return vec2<u32>(0u, x.x << (n - 32u)); }
  return vec2<u32>(x.x << n, (x.y << n) | (x.x >> (32u - n)));
}""",
    "rlx_lshr64": """
fn rlx_lshr64(x: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
  let n = count.x & 63u;
  if (n == 0u) { return x; }
  if (n >= 32u) { return vec2<u32>(x.y >> (n - 32u), 0u); }
  return vec2<u32>((x.x >> n) | (x.y << (32u - n)), x.y >> n);
}""",
    "rlx_ashr64": """
fn rlx_ashr64(x: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
  let n = count.x & 63u;
  let sign = bitcast<u32>(bitcast<i32>(x.y) >> 31u);
  if (n == 0u) { return x; }
  if (n >= 32u) { return vec2<u32>(bitcast<u32>(bitcast<i32>(x.y) >> (n - 32u)), sign); }
  return vec2<u32>((x.x >> n) | (x.y << (32u - n)), bitcast<u32>(bitcast<i32>(x.y) >> n));
}""",
    "rlx_uless64": """
fn rlx_uless64(x: vec2<u32>, y: vec2<u32>) -> bool { return x.y < y.y || (x.y == y.y && x.x < y.x); }""",
    "rlx_sless64": """
fn rlx_sless64(x: vec2<u32>, y: vec2<u32>) -> bool {
  return bitcast<i32>(x.y) < bitcast<i32>(y.y) || (x.y == y.y && x.x < y.x);
}""",
    # Bit by bit: the quotient in the first two words, the remainder in the others.
    "rlx_divided64": """
fn rlx_divided64(x: vec2<u32>, y: vec2<u32>) -> vec4<u32> {
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var k = 0u; k < 64u; k += 1u) {
    let bit = select((x.x >> (63u - k)) & 1u, (x.y >> (31u - (k & 31u))) & 1u, k < 32u);
    let overflows = (rest.y >> 31u) == 1u;
    rest = vec2<u32>((rest.x << 1u) | bit, (rest.y << 1u) | (rest.x >> 31u));
    quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
    if (overflows || !rlx_uless64(rest, y)) { rest = rlx_sub64(rest, y); quotient.x |= 1u; }
  }
  return vec4<u32>(quotient, rest);
}""",
    "rlx_abs64": """
fn rlx_abs64(x: vec2<u32>) -> vec2<u32> { return select(x, rlx_neg64(x), (x.y >> 31u) == 1u); }""",
    "rlx_udiv64": "fn rlx_udiv64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> { return rlx_divided64(x, y).xy; }",
    "rlx_urem64": "fn rlx_urem64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> { return rlx_divided64(x, y).zw; }",
    "rlx_sdiv64": """
fn rlx_sdiv64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let size = rlx_divided64(rlx_abs64(x), rlx_abs64(y)).xy;
  return select(size, rlx_neg64(size), ((x.y ^ y.y) >> 31u) == 1u);
}""",
    "rlx_srem64": """
fn rlx_srem64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let size = rlx_divided64(rlx_abs64(x), rlx_abs64(y)).zw;
  return select(size, rlx_neg64(size), (x.y >> 31u) == 1u);
}""",
    "rlx_signed64": """
fn rlx_signed64(x: u32) -> vec2<u32> { return vec2<u32>(x, bitcast<u32>(bitcast<i32>(x) >> 31u)); }""",
    # The upper 32 bits decide, with one sticky bit for any lower bits: one rounding.
    "rlx_f32_of_u64": """
fn rlx_f32_of_u64(x: vec2<u32>) -> f32 {
  if (x.y == 0u) { return f32(x.x); }
  let zeros = countLeadingZeros(x.y);
  let top = rlx_shl64(x, vec2<u32>(zeros, 0u));
  let scale = bitcast<f32>((159u - zeros) << 23u);
  return f32(top.y | select(0u, 1u, top.x != 0u)) * scale;
}""",
    "rlx_f32_of_i64": """
fn rlx_f32_of_i64(x: vec2<u32>) -> f32 {
  let size = rlx_f32_of_u64(rlx_abs64(x));
  return select(size, -size, (x.y >> 31u) == 1u);
}""",
    "rlx_u64_of_f32": """
fn rlx_u64_of_f32(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let exponent = (bits >> 23u) & 0xffu;
  let whole = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
  if (exponent < 127u) { return vec2<u32>(0u, 0u); }
  if (exponent < 150u) { return rlx_lshr64(whole, vec2<u32>(150u - exponent, 0u)); }
  return rlx_shl64(whole, vec2<u32>(exponent - 150u, 0u));
}""",
    "rlx_i64_of_f32": """
fn rlx_i64_of_f32(x: f32) -> vec2<u32> {
  let size = rlx_u64_of_f32(x);
  return select(size, rlx_neg64(size), (bitcast<u32>(x) >> 31u) == 1u);
}""",
}

_WIDE = "u64({0}.x) | (u64({0}.y) << 32u)"


def _wide(name: str, text: str) -> str:
    """Return a function of two pairs, written with 64-bit numbers."""
    x, y = (_WIDE.format(each) for each in "xy")
    return f"""
fn rlx_{name}64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {{
  let z = {text.format(f"({x})", f"({y})")};
  return vec2<u32>(u32(z & 0xfffffffflu), u32(z >> 32u));
}}"""


_SIGNED_WIDE = "bitcast<u64>(bitcast<i64>{0} {1} bitcast<i64>{2})"

WIDE_FRAGMENTS = {
    "rlx_mul64": _wide("mul", "{0} * {1}"),
    "rlx_udiv64": _wide("udiv", "{0} / {1}"),
    "rlx_urem64": _wide("urem", "{0} % {1}"),
    "rlx_sdiv64": _wide("sdiv", _SIGNED_WIDE.format("{0}", "/", "{1}")),
    "rlx_srem64": _wide("srem", _SIGNED_WIDE.format("{0}", "%", "{1}")),
}
"""Slow operations on pairs, for devices with 64-bit integers, which are an extension of wgpu."""

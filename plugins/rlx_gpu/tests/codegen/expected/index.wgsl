@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
fn rlx_word(at: u32) -> u32 { return memory[at]; }
fn rlx_set_word(at: u32, word: u32) { memory[at] = word; }
@group(0) @binding(2) var<storage, read_write> status: array<atomic<u32>>;
fn rlx_fault(site: u32, place: u32, index: vec2<u32>) {
  let first = site * 65u;
  atomicMin(&status[first], place);
  for (var bit: u32 = 0u; bit < 32u; bit += 1u) {
    if (((index.x >> bit) & 1u) != 0u) { atomicMin(&status[first + 1u + bit], place); }
    if (((index.y >> bit) & 1u) != 0u) { atomicMin(&status[first + 33u + bit], place); }
  }
}
fn rlx_uless64(x: vec2<u32>, y: vec2<u32>) -> bool { return x.y < y.y || (x.y == y.y && x.x < y.x); }
fn rlx_sless64(x: vec2<u32>, y: vec2<u32>) -> bool {
  return bitcast<i32>(x.y) < bitcast<i32>(y.y) || (x.y == y.y && x.x < y.x);
}

@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 2>;
@compute @workgroup_size(256, 1, 1)
fn gather_5a11a1d69369(@builtin(local_invocation_index) thread_in_group: u32, @builtin(workgroup_id) group_of_three: vec3<u32>) {
  let group_in_grid: u32 = group_of_three.x;
  let m0: u32 = places[0].y >> 2u;
  let m1: u32 = places[0].z >> 2u;
  let m2: u32 = places[0].w >> 2u;
  let site: u32 = places[1].x;
  let i: u32 = group_in_grid * 256u + thread_in_group;
  if (i < 20u) {
    let g1: u32 = i % 4u;
    let g0: u32 = i / 4u;
    let v0: vec2<u32> = vec2<u32>(rlx_word(m1 + 2u * (g0)), rlx_word(m1 + 2u * (g0) + 1u));
    let v1: bool = !rlx_uless64(vec2<u32>(8u, 0u), v0);
    if (!v1) {
      rlx_fault(site + 0u, i, v0);
    }
    let v2: bool = rlx_sless64(v0, vec2<u32>(0u, 0u));
    let v3: vec2<u32> = select(vec2<u32>(8u, 0u), vec2<u32>(0u, 0u), v2);
    let v4: vec2<u32> = select(v3, v0, v1);
    let v5: f32 = bitcast<f32>(rlx_word(m0 + g1 + v4.x * 4u));
    rlx_set_word(m2 + g0 * 4u + g1, bitcast<u32>(v5));
  }
}

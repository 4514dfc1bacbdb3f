@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
fn rlx_word(at: u32) -> u32 { return memory[at]; }
fn rlx_set_word(at: u32, word: u32) { memory[at] = word; }

@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;
@compute @workgroup_size(256, 1, 1)
fn add_8d43ccfc40ca(@builtin(local_invocation_index) thread_in_group: u32, @builtin(workgroup_id) group_of_three: vec3<u32>) {
  let group_in_grid: u32 = group_of_three.x;
  let m0: u32 = places[0].y >> 2u;
  let m1: u32 = places[0].z >> 2u;
  let m2: u32 = places[0].w >> 2u;
  let i: u32 = group_in_grid * 256u + thread_in_group;
  if (i < 300u) {
    let g0: u32 = i;
    let v0: f32 = bitcast<f32>(rlx_word(m0 + g0));
    let v1: f32 = bitcast<f32>(rlx_word(m1 + g0));
    let v2: f32 = v0 + v1;
    rlx_set_word(m2 + g0, bitcast<u32>(v2));
  }
}

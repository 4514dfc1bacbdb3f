@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
fn rlx_word(at: u32) -> u32 { return memory[at]; }
fn rlx_set_word(at: u32, word: u32) { memory[at] = word; }
fn rlx_u32_of_f32(x: f32) -> u32 { return bitcast<u32>(x); }
fn rlx_f32_of_bf16(half_word: u32) -> f32 { return bitcast<f32>(half_word << 16u); }

@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;
@compute @workgroup_size(256, 1, 1)
fn cast_f719cfd122b3(@builtin(local_invocation_index) thread_in_group: u32, @builtin(workgroup_id) group_of_three: vec3<u32>) {
  let group_in_grid: u32 = group_of_three.x;
  let m0: u32 = places[0].y >> 1u;
  let m1: u32 = places[0].z >> 2u;
  let i: u32 = group_in_grid * 256u + thread_in_group;
  if (i < 2u) {
    let g0: u32 = i * 4u;
    let w0: u32 = (m0 + (g0)) >> 1u;
    let w0_0: u32 = rlx_word(w0 + 0u);
    let w0_1: u32 = rlx_word(w0 + 1u);
    let v1: u32 = (w0_0) & 0xffffu;
    let v2: f32 = rlx_f32_of_bf16(v1);
    let v3: u32 = w0_0 >> 16u;
    let v4: u32 = (v3) & 0xffffu;
    let v5: f32 = rlx_f32_of_bf16(v4);
    let v6: u32 = (w0_1) & 0xffffu;
    let v7: f32 = rlx_f32_of_bf16(v6);
    let v8: u32 = w0_1 >> 16u;
    let v9: u32 = (v8) & 0xffffu;
    let v10: f32 = rlx_f32_of_bf16(v9);
    let v11: u32 = rlx_u32_of_f32(v2);
    let v12: u32 = rlx_u32_of_f32(v5);
    let v13: u32 = rlx_u32_of_f32(v7);
    let v14: u32 = rlx_u32_of_f32(v10);
    let w15: u32 = m1 + (g0);
    rlx_set_word(w15 + 0u, v11);
    rlx_set_word(w15 + 1u, v12);
    rlx_set_word(w15 + 2u, v13);
    rlx_set_word(w15 + 3u, v14);
  }
}

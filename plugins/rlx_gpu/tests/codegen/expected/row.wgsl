@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
fn rlx_word(at: u32) -> u32 { return memory[at]; }
fn rlx_set_word(at: u32, word: u32) { memory[at] = word; }

var<workgroup> shared0: array<f32, 32>;
var<workgroup> shared1: array<f32, 8>;
@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;
@compute @workgroup_size(32, 1, 1)
fn sum_40a3decdcda8(@builtin(local_invocation_index) thread_in_group: u32, @builtin(workgroup_id) group_of_three: vec3<u32>) {
  let group_in_grid: u32 = group_of_three.x;
  let m0: u32 = places[0].y >> 2u;
  let m1: u32 = places[0].z >> 2u;
  let i: u32 = group_in_grid;
  let g0: u32 = i;
  var a0: f32 = 0.0f;
  for (var j: u32 = 0u; j < 2u; j += 1u) {
    let r: u32 = j * 32u + thread_in_group;
    if (r < 40u) {
      let r1: u32 = r;
      let v1: f32 = bitcast<f32>(rlx_word(m0 + g0 * 40u + r1));
      let v2: f32 = a0 + v1;
      a0 = v2;
    }
  }
  shared0[thread_in_group] = a0;
  workgroupBarrier();
  if (thread_in_group < 8u) {
    var s3: f32 = shared0[thread_in_group];
    for (var k4: u32 = thread_in_group + 8u; k4 < 32u; k4 += 8u) {
      let v5: f32 = shared0[k4];
      let v6: f32 = s3 + v5;
      s3 = v6;
    }
    shared1[thread_in_group] = s3;
  }
  workgroupBarrier();
  var s7: f32 = shared1[0u];
  for (var k8: u32 = 1u; k8 < 8u; k8 += 1u) {
    let v9: f32 = shared1[k8];
    let v10: f32 = s7 + v9;
    s7 = v10;
  }
  if (thread_in_group == 0u) {
    rlx_set_word(m1 + g0, bitcast<u32>(s7));
  }
}

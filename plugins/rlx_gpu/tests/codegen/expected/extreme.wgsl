@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
fn rlx_word(at: u32) -> u32 { return memory[at]; }
fn rlx_set_word(at: u32, word: u32) { memory[at] = word; }

fn rlx_order_key_f32_descending_nan_first_i32(x0: u32) -> u32 {
  let v1: u32 = x0 & 2147483647u;
  let v2: bool = bitcast<i32>(x0) < bitcast<i32>(0u);
  let v3: u32 = v1 | 2147483648u;
  let v4: u32 = 2147483648u - v1;
  let v5: u32 = select(v3, v4, v2);
  let v6: bool = v1 > 2139095040u;
  let v7: u32 = select(v5, 4294967295u, v6);
  let v8: u32 = ~v7;
  return v8;
}
fn rlx_min_of_u32_i32(x0: u32, x1: u32) -> u32 {
  let v2: bool = x0 < x1;
  let v3: u32 = select(x1, x0, v2);
  return v3;
}
var<workgroup> shared0: array<u32, 32>;
var<workgroup> shared1: array<u32, 8>;
var<workgroup> shared2: array<u32, 32>;
var<workgroup> shared3: array<u32, 8>;
@group(0) @binding(1) var<uniform> places: array<vec4<u32>, 1>;
@compute @workgroup_size(32, 1, 1)
fn extreme_ccc88d08c0ca(@builtin(local_invocation_index) thread_in_group: u32, @builtin(workgroup_id) group_of_three: vec3<u32>) {
  let group_in_grid: u32 = group_of_three.x;
  let m0: u32 = places[0].y >> 2u;
  let m1: u32 = places[0].z >> 2u;
  let i0: u32 = group_in_grid;
  let line1: u32 = i0 / 1u;
  let start2: u32 = (i0 % 1u) * 40u;
  let stop3: u32 = (select(40u, start2 + 40u, (start2 + 40u < 40u)));
  var s4: u32 = 4294967295u;
  var s5: u32 = 4294967295u;
  let base6: u32 = line1 * 40u;
  for (var j7: u32 = start2 + thread_in_group; j7 < stop3; j7 += 32u) {
    let v8: u32 = rlx_word(m0 + base6 + j7);
    let v9: u32 = rlx_order_key_f32_descending_nan_first_i32(v8);
    let v10: bool = v9 < s4;
    let v11: bool = v9 == s4;
    let v12: bool = j7 < s5;
    let v13: bool = v11 && v12;
    if (v10 || v13) {
      s4 = v9;
      s5 = j7;
    }
  }
  shared0[thread_in_group] = s4;
  workgroupBarrier();
  if (thread_in_group < 8u) {
    var s14: u32 = shared0[thread_in_group];
    for (var k15: u32 = thread_in_group + 8u; k15 < 32u; k15 += 8u) {
      let v16: u32 = shared0[k15];
      let v17: u32 = rlx_min_of_u32_i32(s14, v16);
      s14 = v17;
    }
    shared1[thread_in_group] = s14;
  }
  workgroupBarrier();
  var s18: u32 = shared1[0u];
  for (var k19: u32 = 1u; k19 < 8u; k19 += 1u) {
    let v20: u32 = shared1[k19];
    let v21: u32 = rlx_min_of_u32_i32(s18, v20);
    s18 = v21;
  }
  let v22: bool = s4 == s18;
  let v23: u32 = select(4294967295u, s5, v22);
  shared2[thread_in_group] = v23;
  workgroupBarrier();
  if (thread_in_group < 8u) {
    var s24: u32 = shared2[thread_in_group];
    for (var k25: u32 = thread_in_group + 8u; k25 < 32u; k25 += 8u) {
      let v26: u32 = shared2[k25];
      let v27: u32 = rlx_min_of_u32_i32(s24, v26);
      s24 = v27;
    }
    shared3[thread_in_group] = s24;
  }
  workgroupBarrier();
  var s28: u32 = shared3[0u];
  for (var k29: u32 = 1u; k29 < 8u; k29 += 1u) {
    let v30: u32 = shared3[k29];
    let v31: u32 = rlx_min_of_u32_i32(s28, v30);
    s28 = v31;
  }
  if (thread_in_group == 0u) {
    let v32: vec2<u32> = vec2<u32>(s28, 0u);
    rlx_set_word(m1 + 2u * (line1), v32.x); rlx_set_word(m1 + 2u * (line1) + 1u, v32.y);
  }
}

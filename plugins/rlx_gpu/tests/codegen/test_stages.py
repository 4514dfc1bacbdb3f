"""Long rows in parts are kernels of the loop language that write nothing twice."""

from __future__ import annotations

from plugins.rlx_gpu.tests.codegen.cases import MACHINES, printed
from rlx_core.codegen import check_kernel, parse_kernel
from rlx_core.codegen.faults import fault_of
from rlx_core.ops import standard_ops
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.stages import stages_of
from tests.codegen.kernels import SAMPLES

BY_INDEX = """\
kernel less_than_its_maximum grid [3] row [40]
  operand 0: x0 f32
  operand 1: x1 f32
  operand 2: x2 i64
  result 3: y0 f32
  %0 = load x0[g0*160 + r1*4] : f32[row]
  %1 = max over row of %0 : f32
  %2 = load x2[g0*8] : i64
  %3 = bound %2 in 0..8 checked : i64
  %4 = load x1[%3*160 + r1*4] : f32[row]
  %5 = sub(%4, %1) : f32[row]
  store %5 -> y0[g0*160 + r1*4]
"""
"""Rows of `x1` that data choose, minus the maxima of rows of `x0`."""


def test_every_stage_of_a_kernel_with_several_results_obeys_the_rules_of_kernels() -> None:
    """One of them is that no two points store at one place."""
    cut = [stages_of(one, MACHINES["parts"]).stages for one in SAMPLES.values() if len(one.stores) > 1]
    assert max(map(len, cut)) > 4
    for stage in (stage for stages in cut for stage in stages):
        check_kernel(stage.kernel)


def test_what_is_stored_once_a_row_is_no_kernel_of_its_own() -> None:
    norm = next(one for one in SAMPLES.values() if one.name == "batch_norm")
    *before, last = stages_of(norm, MACHINES["parts"]).stages
    assert [len(stage.kernel.stores) for stage in before] == [1, 1, 1, 5]
    assert len(last.kernel.stores) == 1


def test_an_index_of_a_row_has_the_place_of_the_row_in_every_stage() -> None:
    """In the last kernel each element is a point, and the host knows of rows."""
    one = check_kernel(parse_kernel(BY_INDEX, {op.name: op for op in standard_ops()}))
    code = printed(one, OPENCL, MACHINES["parts"])
    assert code.calls[-1].faults == (fault_of(one, 3),)
    assert "rlx_fault(status, site + 0u, i / 10u, " in code.functions[-1].text

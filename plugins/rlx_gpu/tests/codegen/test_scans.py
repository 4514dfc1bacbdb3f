"""Running reductions: whole numbers exactly, floats to what another order of sums changes, the same bits every run."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, Executor
from plugins.rlx_gpu.tests.codegen.structured import SMALL, USUAL, check, printed, static_samples
from plugins.rlx_gpu.tests.codegen.structured_cases import SCANS, SCANS_SMALL, scan_of
from rlx_core.codegen.scans import ScanProblem
from rlx_core.ir.dtypes import f32
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cumsum
from rlx_core.ops.families import Family
from rlx_gpu.codegen.lines.scans import print_scan
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.walks import Machine


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("count", [1, pytest.param(len(SCANS_SMALL), marks=pytest.mark.slow)], ids=["one", "all"])
def test_a_group_runs_along_a_line_as_numpy_does(executor: Executor, count: int) -> None:
    check(executor, SCANS_SMALL[:count])


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_every_kind_and_element_runs_along_lines_as_numpy_does(executor: Executor) -> None:
    check(executor, SCANS)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("machine", [USUAL, SMALL], ids=["usual", "small"])
def test_samples_of_ops_have_the_results_of_their_reference(executor: Executor, machine: Machine) -> None:
    cases = []
    for op in Family("cumulative"):
        for instance, sample in static_samples(op):
            type, x = sample.types[0], sample.arrays(op)
            if type is not None and not type.dtype.is_complex:
                cases.append(scan_of(ScanProblem.of(instance, type), x, machine))  # type: ignore[arg-type]
    check(executor, cases)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_what_is_no_number_or_infinite_stays_where_it_is(executor: Executor) -> None:
    x = np.zeros((3, 70, 1), np.float32)
    x[0, :, 0], x[1, 20, 0], x[2, 30, 0] = -np.inf, np.inf, np.nan
    cases = [scan_of(ScanProblem(op, f32, 3, 70, 1, False, False), [x], SMALL) for op in (CumLogSumExp, Cummax)]
    check(executor, cases)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_a_running_sum_of_negative_zeros_is_one_and_an_exclusive_one_begins_with_zero(executor: Executor) -> None:
    x = np.full((3, 70, 1), -0.0, np.float32)
    cases = [
        scan_of(ScanProblem(Cumsum, f32, 3, 70, 1, False, is_exclusive), [x], SMALL) for is_exclusive in (False, True)
    ]
    exact = [evolve(case, tolerance=None, expected=(y,)) for case, y in zip(cases, (x, -x), strict=True)]
    check(executor, exact)


def test_few_long_lines_take_three_launches() -> None:
    def launches(outer: int, n: int, inner: int) -> int:
        problem = ScanProblem(Cumsum, f32, outer, n, inner, False, False)
        return len(printed(print_scan, problem, OPENCL, USUAL).calls)

    assert [launches(1, 9000, 1), launches(1, 1 << 20, 1), launches(500, 1 << 15, 1), launches(1, 1 << 15, 300)] == [
        1,
        3,
        1,
        3,
    ]

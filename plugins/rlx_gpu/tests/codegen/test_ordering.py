"""Sorting, the leading few and places of extremes: the very results of NumPy, on every road and in every language."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, Executor
from plugins.rlx_gpu.tests.codegen.structured import USUAL, Case, check, printed, static_samples
from plugins.rlx_gpu.tests.codegen.structured_cases import ORDERS, ORDERS_SMALL, order_of
from rlx_core.codegen.ordering import Extreme, Keys, Sorting
from rlx_core.ir.dtypes import f32, f64, i64
from rlx_core.ir.types import TensorType
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.ops.sorting import ArgSort, Sort, TopK
from rlx_gpu.codegen.lines.sorting import print_sorting
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.wgsl import WGSL


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("count", [1, pytest.param(len(ORDERS_SMALL), marks=pytest.mark.slow)], ids=["one", "all"])
def test_lines_come_out_in_the_order_of_numpy(executor: Executor, count: int) -> None:
    check(executor, ORDERS_SMALL[:count])


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_every_kind_of_element_and_size_comes_out_in_order(executor: Executor) -> None:
    check(executor, ORDERS)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("op", [Sort, ArgSort, TopK, ArgMax, ArgMin])
def test_samples_of_ops_have_the_results_of_their_reference(executor: Executor, op: type) -> None:
    cases = []
    for instance, sample in static_samples(op):
        (type,), (x,) = sample.types, sample.arrays(op)
        assert type is not None
        assert x is not None
        found = instance.reference(x.astype(np.float64) if type.dtype.is_narrow else x)
        results = instance.infer(type)
        pairs = [(found, results)] if isinstance(results, TensorType) else zip(found, results, strict=True)
        expected = [y.astype(t.dtype.numpy) for y, t in pairs]
        if op in (ArgMax, ArgMin):
            problem: Sorting | Extreme = Extreme.of(instance, type)
        else:
            problem = Sorting.of(instance, type, results if isinstance(results, TensorType) else results[0])
        cases.append(Case(problem, order_of(problem, USUAL).print, USUAL, (x,), expected))
    check(executor, cases)


def test_what_a_language_has_not_is_refused_by_name() -> None:
    with pytest.raises(AssertionError, match="needs f64 in wgsl"):
        printed(print_sorting, Sorting(Keys(f64), 1, 4, 1, 4, i64, True), WGSL, USUAL)


def test_short_lines_are_one_launch_and_long_ones_one_more_each_time_they_double() -> None:
    def launches(size: int, kept: int) -> int:
        problem = Sorting(Keys(f32), 1, size, 1, kept, i64, True)
        return len(printed(print_sorting, problem, OPENCL, USUAL).calls)

    assert [launches(n, n) for n in (1, 1024, 1025, 5000, 1 << 20)] == [1, 1, 2, 4, 11]
    assert [launches(n, 8) for n in (1024, 5000, 1 << 20)] == [1, 2, 3]

"""Printed loop kernels compute what the interpreter of the loop language does, whichever way they are walked."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.cases import MACHINES, agree, data_of, new_kernels, printed
from plugins.rlx_gpu.tests.codegen.executors import EXECUTORS, ON_CUDA, ON_HIP, ON_METAL, ON_POCL, Executor, slow
from rlx_core.codegen import run_kernel
from rlx_core.codegen.faults import Report
from rlx_core.codegen.loops import Kernel
from rlx_core.emit.emitters import Emitted
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import bf16, f16, i8, i64
from rlx_core.ops.activation import exp, gelu
from rlx_core.ops.comparison import greater
from rlx_core.ops.conversion import Cast
from rlx_core.ops.indexing import Gather
from rlx_core.ops.normalization import LayerNorm
from rlx_core.ops.reduction import Max, Mean
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Sum
from rlx_gpu.codegen.kernels import refusal
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.walks import Machine
from tests.codegen.kernels import kernel

KINDS = {
    "rows": kernel(Softmax(), "f32[3, 70]"),
    "rows of halves": kernel(Softmax(), "f16[5, 40]"),
    "two kinds of operands": kernel(LayerNorm(), "f32[4, 36]", "f32[36]", "f32[36]"),
    "columns": kernel(Sum(axes=(0,)), "f32[50, 300]"),
    "one number": kernel(Mean(axes=(0,)), "f64[1000]"),
    "largest of whole numbers": kernel(Max(axes=(1,)), "i8[3, 300]"),
    "short rows": kernel(Max(axes=(1,)), "f32[40, 2]"),
    "points": kernel(gelu.op(), "f32[8, 40]"),
    "halves": kernel(exp.op(), "bf16[64]"),
    "booleans": kernel(greater.op(), "f32[16, 8]", "f32[16, 8]"),
    "from wide to narrow": kernel(Cast(i8), "f64[24]"),
    "from narrow to wide": kernel(Cast(i64), "f16[24]"),
    "an index from data": kernel(Gather(0), "f32[9, 16]", "i32[5]"),
    "nothing": kernel(exp.op(), "f32[0, 3]"),
}


def check(executor: Executor, kernels: list[Kernel], machine: Machine) -> None:
    kernels = [k for k in kernels if refusal(k, executor.language, scalars_of(executor.language)) is None]
    made = [printed(k, executor.language, executor.machine(machine)) for k in kernels]
    programs = executor.programs(made)
    for one, functions in zip(kernels, made, strict=True):
        want, got = data_of(one), data_of(one)
        reports = programs.run(functions, got)
        refused = None
        try:
            run_kernel(one, want)
        except IndexRangeError as error:
            refused = error.message
        assert _said(functions, reports) == refused
        if refused is None:
            assert list(agree(one, want, got)) == []


def _said(functions: Emitted, reports: list[Report | None]) -> str | None:
    """The message of the first index that was reported."""
    faults = [fault for call in functions.calls for fault in call.faults]
    found = [fault(report.index).message for fault, report in zip(faults, reports, strict=True) if report is not None]
    return found[0] if found else None


@pytest.mark.parametrize("executor", [ON_POCL, ON_CUDA, ON_METAL], ids=repr)
def test_rows_columns_and_an_index_from_data_are_the_interpreters(executor: Executor) -> None:
    check(
        executor,
        [KINDS[name] for name in ("short rows", "columns", "booleans", "an index from data")],
        MACHINES["small"],
    )


@pytest.mark.slow
@pytest.mark.parametrize("executor", [ON_POCL, ON_CUDA, ON_HIP, ON_METAL], ids=repr)
@pytest.mark.parametrize("name", MACHINES)
def test_every_kind_of_kernel_is_the_interpreters(name: str, executor: Executor) -> None:
    check(executor, list(KINDS.values()), MACHINES[name])


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("part", range(30))
@pytest.mark.parametrize("name", MACHINES)
def test_every_sample_is_the_interpreters(name: str, part: int, executor: Executor) -> None:
    check(executor, new_kernels(executor.language, name)[part::30], MACHINES[name])


@pytest.mark.parametrize("wrong", [-3, 9, 1 << 40, -(1 << 63)])
@pytest.mark.parametrize("executor", [ON_POCL, ON_CUDA, ON_METAL], ids=repr)
def test_the_first_index_outside_is_reported_with_its_place(executor: Executor, wrong: int) -> None:
    """Of several threads that meet one, in whatever order, the first point in order stays."""
    take = kernel(Gather(0), "f32[9, 4]", "i64[200]")
    data = data_of(take)
    index = data[1]
    assert index is not None, "indices are an operand"
    index.view(np.int64)[[150, 17, 90]] = [12, wrong, 40]
    for machine in (MACHINES["usual"], MACHINES["small"]):
        functions = printed(take, executor.language, executor.machine(machine))
        assert executor.programs([functions]).run(functions, data) == [Report(17 * 4, wrong)]


@pytest.mark.parametrize("machine", ["usual", *(pytest.param(n, marks=pytest.mark.slow) for n in ("small", "parts"))])
@pytest.mark.parametrize("dtype", [f16, bf16])
@pytest.mark.parametrize("executor", [ON_POCL, ON_CUDA, *slow(ON_HIP, ON_METAL)], ids=repr)
def test_narrow_floats_are_stored_with_one_rounding(executor: Executor, dtype: object, machine: str) -> None:
    """Ties, subnormals, overflow, infinities and NaN, bit for bit."""
    ties = [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2**-25, 3 * 2**-25]
    edges = [65504, 65519.9, 65520, 1e9, -3e38, 2**-24, 2**-14, 2**-14 - 2**-26, 1e-45, -(2.0**-149)]
    numbers = np.array([0.0, -0.0, 1.0, *ties, *edges, np.inf, -np.inf, np.nan], np.float32)
    assert dtype in (f16, bf16)
    cast = kernel(Cast(dtype), f"f32[{numbers.size}]")  # type: ignore[arg-type]
    functions = printed(cast, executor.language, executor.machine(MACHINES[machine]))
    result = np.zeros(2 * numbers.size, np.uint8)
    executor.programs([functions]).run(functions, [numbers.view(np.uint8), result])
    with np.errstate(over="ignore"):
        want = numbers.astype(dtype.numpy)  # type: ignore[attr-defined]
    got = result.view(want.dtype)
    is_nan = np.isnan(want.astype(np.float32))
    assert (np.isnan(got.astype(np.float32)) == is_nan).all()
    assert (got.view(np.uint16)[~is_nan] == want.view(np.uint16)[~is_nan]).all()


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_results_do_not_depend_on_how_many_groups_run(executor: Executor) -> None:
    """A sum in parts has its order from the shape alone."""
    total = kernel(Sum(axes=(0,)), "f32[100000]")
    data, found = data_of(total, seed=3), set()
    assert data[0] is not None, "there is an operand"
    numbers = data[0].view(np.float32)
    numbers[~np.isfinite(numbers)] = 1.0
    for most in (1, 3, 65535):
        functions = printed(total, executor.language, executor.machine(Machine(most_groups=most)))
        assert len(functions.calls) == 2
        executor.programs([functions]).run(functions, data)
        assert data[1] is not None, "there is a result"
        found.add(data[1].tobytes())
    assert len(found) == 1
    assert np.isclose(data[1].view(np.float32)[0], numbers.astype(np.float64).sum(), rtol=1e-5, atol=1e-2)

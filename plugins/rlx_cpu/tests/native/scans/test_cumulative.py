"""Running reductions: in the order of the axis, so that sums, products and extremes are the reference's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import c64, dtype
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cummin, Cumprod, Cumsum, LinearRecurrence
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.scans.cumulative import emit_running
from rlx_cpu.native.scans.running_rows import is_running

EXACT = (Cumsum, Cumprod, Cummax, Cummin, LinearRecurrence)
SAMPLES = [p for p in programs(EXACT) if p.is_static and is_running.holds(p.node)]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_runs_as_numpy_runs_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_running, program.node.op, drawn(program), isa)


SHAPES = [(1, 40), (16, 16), (37, 33), (5, 1), (70, 129)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", [Cumsum, Cumprod, Cummax, Cummin])
def test_lines_of_any_number_and_length(op: Any, axis: int, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    for exclusive in (False, True):
        for reverse in (False, True):
            agrees(emit_running, op(axis, exclusive, reverse), [x])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_recurrence_does_not_read_its_first_factor(axis: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.uniform(-1, 1, (2, *shape)).astype("f4")
    for reverse in (False, True):
        np.moveaxis(a, axis, 0)[-1 if reverse else 0] = np.nan
        agrees(emit_running, LinearRecurrence(axis, reverse), [a, b])
        np.moveaxis(a, axis, 0)[-1 if reverse else 0] = 1


def test_extremes_keep_nan_and_start_at_the_ends_of_the_dtype() -> None:
    x = np.array([[3, np.nan, 1, 5], [-np.inf, -1, np.inf, 0]], "f4")
    for op in (Cummax, Cummin):
        agrees(emit_running, op(1), [x])
        agrees(emit_running, op(1, exclusive=True), [x[1:]])
        agrees(emit_running, op(0, exclusive=True), [np.array([[3], [200]], "u1")])


@pytest.mark.medium
@pytest.mark.parametrize("name", ["f4", "f8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_log_sum_exp_is_close_to_float64(axis: int, name: str) -> None:
    x = np.random.default_rng(3).uniform(-90, 90, (19, 35)).astype(name)
    x[3, :5], x[7, 9], x[:, 0] = -np.inf, np.inf, -np.inf
    for exclusive in (False, True):
        op = CumLogSumExp(axis, exclusive)
        made = kernel(emit_running, op, [x], available()[0])
        (found,) = made(x, threads=1)
        with np.errstate(all="ignore"):
            wanted = op.reference(x.astype("f8"))

        # A term is off by the exponentials' 2 ulp and by as many roundings as there are places; the sum's logarithm by that.
        np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(name).eps, atol=64 * np.finfo(name).eps)
        np.testing.assert_array_equal(made(x, threads=3)[0], found)


def test_products_of_complex_numbers_are_left_to_numpy() -> None:
    refused = [p for p in programs((Cumprod,)) if p.is_static and p.node.types[0].dtype is c64]

    assert refused
    assert not any(is_running.holds(p.node) for p in refused)
    assert dtype("c64") is c64

"""The modules of kernels are imported by op: each is listed for the ops that it registers kernels of."""

from __future__ import annotations

from typing import Any

import pytest

from rlx_cpu.backend import kernel_table
from rlx_cpu.kernels.table import MODULES as NUMPY_MODULES
from rlx_cpu.kernels.table import kernels
from rlx_cpu.native.table import MODULES, native
from rlx_cpu.tier import reason_without


def module_of(run: Any) -> str:
    while hasattr(run, "emit"):
        run = run.emit
    return str(run.__module__)


def folder_of(module: str) -> str:
    return module.rpartition(".")[0]


@pytest.mark.skipif(reason_without() is not None, reason="the native tier is not here")
def test_native_kernels_are_in_modules_that_are_listed_for_their_ops() -> None:
    for row in native:
        names = {row.op.name or row.op.__name__, "Op"}
        folders = {folder_of(module) for module, ops in MODULES.ops.items() if names & {*ops.split()}}
        assert folder_of(module_of(row.run)) in folders, row.name


def test_numpy_kernels_are_in_modules_that_are_listed_for_their_ops() -> None:
    for row in kernels:
        names = {row.op.name or row.op.__name__}
        listed = {module for module, ops in NUMPY_MODULES.ops.items() if names & {*ops.split(), "Elementwise"}}
        module = module_of(row.run)
        assert module in listed or module == "rlx_core.run.control" or "Elementwise" in NUMPY_MODULES.ops[module], (
            row.name
        )


@pytest.mark.parametrize(
    "is_native",
    [False, pytest.param(True, marks=pytest.mark.skipif(reason_without() is not None, reason="no native tier"))],
)
def test_rows_found_by_op_are_those_of_the_whole_table(is_native: bool) -> None:
    by_op = kernel_table.__wrapped__(is_native)
    whole = kernel_table.__wrapped__(is_native)
    ops = {row.op for row in whole}
    for op in sorted(ops, key=lambda op: op.name or op.__name__):
        assert [k.name for k in by_op.candidates(op)] == [k.name for k in whole.candidates(op)]
    assert {k.name for k in by_op} == {k.name for k in whole}

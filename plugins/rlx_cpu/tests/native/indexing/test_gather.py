"""Reads at indices, row by row: the reference's bits for every dtype, and what an index outside means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import ALL, dtype
from rlx_core.ops.indexing import Gather
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.indexing.gather import emit_gather
from rlx_cpu.native.llvm.isa import Isa, available

SAMPLES = [p for p in programs((Gather,)) if p.is_static]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_read_as_numpy_reads_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_gather, program.node.op, drawn(program), isa)


@pytest.mark.parametrize("name", [d.name for d in ALL])
@pytest.mark.parametrize("oob", ["clip", "fill"])
def test_outside_is_the_nearest_end_or_the_fill(oob: Any, name: str) -> None:
    table = (np.arange(5 * 37).reshape(5, 37) % 100).astype(dtype(name).numpy)
    indices = np.array([[0, -1, 4], [5, 2, -128]], "i1")
    agrees(emit_gather, Gather(0, oob=oob, fill=1), [table, indices])
    agrees(emit_gather, Gather(1, oob=oob, fill=1), [table, indices])


@pytest.mark.parametrize(
    "size", [(1, 1000, 700, 129), (40, 3, 2, 1), (2, 0, 5, 3), (0, 2, 5, 3), (2, 4, 0, 3)], ids=str
)
def test_tables_and_rows_of_any_number(size: tuple[int, int, int, int]) -> None:
    outer, n, count, inner = size
    rng = np.random.default_rng(0)
    table = rng.standard_normal((outer, n, inner)).astype("f4")
    agrees(emit_gather, Gather(1, oob="fill", fill=2.5), [table, rng.integers(-1, n + 1, count)])


def test_an_index_outside_of_an_empty_table_is_a_fault() -> None:
    table, indices = np.zeros((0, 3), "f4"), np.zeros(2, "i8")
    emitted = kernel(emit_gather, Gather(0, oob="clip"), [table, indices], available()[0]).emitted

    assert emitted.fault is not None
    assert emitted.fault(0).message == "gather: index 0 is outside an axis of 0 elements"

"""Places in sorted rows: NumPy's, for every dtype, side and instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import dtype, i32
from rlx_core.ops.sorting import ORDERED, SearchSorted
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.ordering.search import emit_search

SAMPLES = [p for p in programs((SearchSorted,)) if p.is_static]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_found_where_numpy_finds_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_search, program.node.op, drawn(program), isa)


@EVERY_WIDTH
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [d.name for d in ORDERED])
def test_few_different_numbers_and_nan(name: str, side: str, isa: Isa) -> None:
    rng, kind = np.random.default_rng(1), dtype(name)
    numbers = np.array([0, 1, 2, 5, 9] if kind.kind != "int" else [-9, -1, 0, 3, 9]).astype(kind.numpy)
    if kind.is_float:
        numbers = np.array([-np.inf, -2, -0.0, 0.0, 1, np.inf, np.nan], kind.numpy)
    row = np.sort(rng.choice(numbers, 101).astype(np.float64)).astype(kind.numpy)
    agrees(emit_search, SearchSorted(side, i32), [row, rng.choice(numbers, (3, 55))], isa)  # type: ignore[arg-type]


@pytest.mark.medium
@EVERY_WIDTH
def test_rows_of_any_length(isa: Isa) -> None:
    rng = np.random.default_rng(2)
    for n in (1, 2, 3, 4, 7, 8, 9, 100, 1000):
        row = np.sort(rng.integers(-n, n, n)).astype("f4")
        wanted = rng.integers(-n - 2, n + 2, 37).astype("f4")
        agrees(emit_search, SearchSorted(), [row, wanted], isa)
        agrees(emit_search, SearchSorted("right"), [np.stack([row, row - 1]), np.stack([wanted, wanted])], isa)


def test_blocks_of_values_are_shared_out() -> None:
    rng = np.random.default_rng(3)
    row, wanted = np.sort(rng.standard_normal(300)), rng.standard_normal((2, 1500))
    agrees(emit_search, SearchSorted(), [row, wanted])

    assert kernel(emit_search, SearchSorted(), [row, wanted], available()[0]).emitted.parts == 6

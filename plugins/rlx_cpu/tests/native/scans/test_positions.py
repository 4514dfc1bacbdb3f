"""Positions of extremes: the first of equals, NaN before everything, whichever way lanes lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH

from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dtypes import dtype
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.scans.positions import emit_position, is_held

SAMPLES = [p for p in programs((ArgMax, ArgMin)) if p.is_static and is_held.holds(p.node)]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_found_where_numpy_finds_it(program: OpProgram, isa: Isa) -> None:
    (x,) = drawn(program)
    found = type(program.node.op)(program.node.op.axis, program.node.op.keep_dim)  # type: ignore[attr-defined]
    agrees(emit_position, found, [x], isa)


@pytest.mark.medium
@pytest.mark.parametrize("name", [d.name for d in DTYPES])
@pytest.mark.parametrize("op", [ArgMax, ArgMin])
def test_the_first_of_equals_is_found_in_rows_of_any_length(op: Any, name: str) -> None:
    rng = np.random.default_rng(7)
    for n in (1, 2, 3, 15, 16, 17, 64, 100, 1000):
        # Few different numbers, so that nearly every row has ties.
        x = rng.integers(0, 4, (5, n)).astype(dtype(name).numpy)
        for axis in (0, 1):
            agrees(emit_position, op(axis), [x])


@pytest.mark.parametrize("op", [ArgMax, ArgMin])
def test_the_first_nan_wins(op: Any) -> None:
    x = np.random.default_rng(8).standard_normal((33, 70)).astype("f4")
    x[3, 50:60], x[3, 41], x[9] = np.nan, np.nan, np.nan
    x[5, 3], x[5, 40], x[6] = np.inf, -np.inf, -np.inf
    for axis in (0, 1):
        agrees(emit_position, op(axis), [x])

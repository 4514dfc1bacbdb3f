"""The page on kinks: its examples run, its rlx columns are what rlx gives, and no op with a kink is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph
from rlx_core.ops import standard_ops

from .kink_table import FUNCTIONS, Row, rows, shown

ROWS = rows()
assert len(ROWS) > 50, "the table is found"
STEP = 1e-9


def slope(row: Row, x: float) -> float:
    return float(rlx.grad(FUNCTIONS[row.function])(np.float64(x)))


def test_the_page_prints_what_it_shows(run_page: Any) -> None:
    run_page("nondifferentiable-points.md")


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_a_row_says_what_both_modes_give(row: Row) -> None:
    x = np.float64(row.at)
    _, tangent = rlx.jvp(FUNCTIONS[row.function], (x,), (np.float64(1),))
    assert shown(slope(row, row.at)) == shown(float(tangent)) == row.rlx


@pytest.mark.parametrize("row", [r for r in ROWS if not math.isnan(r.at)], ids=str)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_a_row_says_what_the_derivatives_beside_it_are(row: Row) -> None:
    for side, says in ((-1, row.below), (1, row.above)):
        near, nearer = (slope(row, row.at + side * step) for step in (STEP, STEP / 8))
        diverges = abs(nearer) > 1.5 * abs(near)
        assert says == (f"{math.copysign(math.inf, near):g}" if diverges else shown(nearer))


def test_every_op_with_a_kink_has_a_row() -> None:
    met = set()
    for row in ROWS:
        traced: Graph = rlx.trace(FUNCTIONS[row.function], rlx.spec("f64[]"))
        met |= {node.op.name for node in traced.nodes}
    assert {op.name for op in standard_ops() if op.kinks} <= met

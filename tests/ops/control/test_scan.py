"""What a Scan keeps for its derivatives."""

from __future__ import annotations

from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.call import traced
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.control.scan_derivatives import kept, with_trajectories

BODY = traced("cell", lambda c, n, x: (tanh(add(c, x)), add(n, 1), n, multiply(c, x)), "f32[3] i64[] f32[3]")
OP = Scan(BODY, 2, 0, 4)


def test_a_y_that_is_the_carry_as_it_was_is_its_trajectory() -> None:
    assert kept(OP) == {1: 0}


def test_missing_trajectories_come_after_the_results_and_only_once() -> None:
    full = with_trajectories(OP)
    assert kept(full) == {0: 2, 1: 0}
    assert full.body.outputs[:4] == BODY.outputs
    assert with_trajectories(full) is full

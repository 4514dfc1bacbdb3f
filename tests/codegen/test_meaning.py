"""Which loop kernels may write where they read."""

from __future__ import annotations

from typing import Any

import pytest

from rlx_core.builder import GraphBuilder
from rlx_core.codegen.meaning import is_read_in_place
from rlx_core.ir.graph import Node
from rlx_core.ops.activation import sqrt
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.fused_loop import FusedLoop, LoopStep


def fused(results: tuple[int, ...], steps: tuple[LoopStep, ...]) -> Node:
    """Steps 2 and 3 of a number s (0) and a matrix p (1), by their results."""
    g: Any = GraphBuilder("f")
    s, p = g.input("s", "f32[]"), g.input("p", "f32[4, 3]")
    made = FusedLoop(inputs=2, steps=steps, results=results)(s, p)
    return (made if isinstance(made, tuple) else (made,))[0].node


SCALED = (LoopStep(sqrt.op(), (0,)), LoopStep(multiply.op(), (1, 2)))


@pytest.mark.parametrize(("results", "may"), [((3,), True), ((2, 3), False)], ids=["a matrix", "a number besides"])
def test_a_number_that_every_element_reads_is_not_overwritten_beside_them(results: tuple[int, ...], may: bool) -> None:
    """A device's threads come to it in any order: one would read what another has written."""
    assert is_read_in_place(fused(results, SCALED)) is may

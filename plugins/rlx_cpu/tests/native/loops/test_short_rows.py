"""Short rows of an element-wise kernel are taken several at once, with the bits of one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel, place_of

from rlx_core.ir.graph import Builder, building
from rlx_core.ops.arithmetic import maximum
from rlx_core.passes.fuse.loops import group_of
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.loops import walk
from rlx_cpu.native.loops.rows import emit_loop

CASES = {
    "a vector and a half": ((40, 24), "f4"),
    "one vector that is not whole": ((2, 5, 9, 3), "f4"),
    "whole vectors": ((12, 32), "f4"),
    "f64": ((10, 13), "f8"),
    "f16": ((24, 20), "f2"),
    "i32": ((14, 17), "i4"),
}


@EVERY_WIDTH
@pytest.mark.parametrize("name", CASES)
def test_rows_at_once_have_the_bits_of_one_after_the_other(
    name: str, isa: Isa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of all orders of units, with the result over either image; nothing is written beside it."""
    shape, dtype = CASES[name]
    rng = np.random.default_rng(len(name))
    operands = [(rng.standard_normal(s) * 9).astype(dtype) for s in (shape, shape[-1:], shape[-1:], shape)]
    builder = Builder("scaled")
    with building(builder):
        x, scale, shift, other = (builder.input(f"x{i}", place_of(o).type) for i, o in enumerate(operands))
        graph = builder.finish([maximum(x * scale + shift, other) - other])
    group = group_of(graph, [n for n in graph.nodes if not n.is_leaf])
    assert [v.node.name for v in group.inputs] == ["x0", "x1", "x2", "x3"]
    together = kernel(emit_loop, group.make, operands, isa)
    monkeypatch.setattr(walk, "rows_at_once", lambda *_: 1)
    alone = kernel(emit_loop, group.make, operands, isa)
    vectors = -(-shape[-1] // (isa.vector_bytes // max(4, operands[0].itemsize)))
    assert (str(together.module) != str(alone.module)) == (vectors <= 4)
    (wanted,) = alone(*operands)
    for threads, is_last_first in ((1, True), (3, True), (3, False)):
        for in_place in ({}, {0: (0,)}, {0: (3,)}):
            (found,) = together(*operands, threads=threads, in_place=in_place, is_last_first=is_last_first)
            np.testing.assert_array_equal(found, wanted)

"""Windows that overlap are read once for several places, and every place adds up what it did alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import frozen
from harness import EVERY_WIDTH, kernel, place_of

from rlx_core.codegen.meaning import loop_kernel
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Builder, building
from rlx_core.ops.reduction import Max
from rlx_core.ops.structural import Sum
from rlx_core.passes.fuse.loops import group_of
from rlx_cpu.native.llvm.isa import ISAS, Isa
from rlx_cpu.native.loops import walk
from rlx_cpu.native.loops.rows import emit_loop
from rlx_cpu.native.loops.walk import Shape

RNG = np.random.default_rng(0)


@frozen
class Case:
    """Windows of two images with channels last: weighed, added up, with a bias and another image; of a pool, the largest.

    Attributes:
        places: Windows down and along an image.
        window: Cells of a window.
    """

    channels: int
    places: tuple[int, int]
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1
    dtype: str = "f4"
    is_pool: bool = False

    def array(self, *shape: int) -> np.ndarray:
        return (RNG.standard_normal(shape) * 9).astype(self.dtype)

    def operands(self) -> list[np.ndarray]:
        """The image once an element of a window, as a view; then the others. The last is as the result."""
        ends = [(n - 1) * self.stride + (k - 1) * self.dilation for n, k in zip(self.places, self.window, strict=True)]
        image = self.array(2, ends[0] + 1, ends[1] + 1, self.channels)
        batch, *inside, one = image.strides
        steps = *(s * self.stride for s in inside), *(s * self.dilation for s in inside)
        shape = 2, *self.places, *self.window, self.channels
        windows = np.lib.stride_tricks.as_strided(image, shape, (batch, *steps, one), writeable=False)
        if self.is_pool:
            return [windows]
        return [
            windows,
            self.array(*self.window, self.channels),
            self.array(self.channels),
            self.array(2, *self.places, self.channels),
        ]

    def op(self, operands: list[np.ndarray]) -> Any:
        builder = Builder("windows")
        with building(builder):
            x, *others = [builder.input(f"x{i}", place_of(o).type) for i, o in enumerate(operands)]
            if self.is_pool:
                result = -Max(axes=(3, 4))(x)
            else:
                weights, bias, other = others
                result = -(Sum(axes=(3, 4))(x * weights) + bias + other)
        graph = builder.finish([result])
        group = group_of(graph, [n for n in graph.nodes if not n.is_leaf])
        assert [v.node.name for v in group.inputs] == [f"x{i}" for i in range(len(operands))]
        return group.make

    def shape(self, isa: Isa) -> Shape:
        operands = self.operands()
        builder = Builder()
        op = self.op(operands)
        node = builder.emit(op, [builder.input(f"x{i}", place_of(o).type) for i, o in enumerate(operands)])[0].node
        layout = Layout(tuple(map(place_of, operands)), tuple(map(Place.dense, node.types)))
        return Shape.of(loop_kernel(node, layout), isa)


CASES = (
    Case(16, (4, 20)),
    Case(24, (3, 13)),
    Case(40, (2, 7), window=(5, 5)),
    Case(144, (3, 6), stride=2),
    Case(3, (2, 5), window=(2, 3)),
    Case(33, (9, 2), window=(3, 1)),
    Case(32, (1, 11), dilation=2),
    Case(20, (3, 23), dtype="f8"),
    Case(17, (2, 9), dtype="i4"),
    Case(64, (3, 10), stride=2, is_pool=True),
    Case(19, (3, 31), stride=2, dtype="f2", is_pool=True),
)


@EVERY_WIDTH
@pytest.mark.parametrize("case", CASES, ids=str)
def test_places_side_by_side_have_the_bits_of_one_after_the_other(
    case: Case, isa: Isa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of all orders of units, with the result over the image that is added too."""
    operands = case.operands()
    assert case.shape(isa).windows is not None
    together = kernel(emit_loop, case.op(operands), operands, isa)
    monkeypatch.setattr(walk, "windows_of", lambda *_: None)
    alone = kernel(emit_loop, case.op(operands), operands, isa)
    (wanted,) = alone(*operands)
    taken = {} if case.is_pool else {0: (len(operands) - 1,)}
    for threads, is_last_first in ((1, True), (3, True), (3, False)):
        for in_place in ({}, taken):
            (found,) = together(*operands, threads=threads, in_place=in_place, is_last_first=is_last_first)
            np.testing.assert_array_equal(found, wanted)


def test_the_cases_are_of_every_kind() -> None:
    """Units with fewer places, channels that end within a vector, two vectors a place, windows down the image."""
    # The widths of AVX-512, which nothing here runs.
    found = [(case, case.shape(isa)) for case in CASES for isa in ISAS if isa.vector_bytes == 64]
    kinds = [
        {
            "all units alike": not s.kernel.extents[s.windows.axis] % s.windows.places,
            "a last unit with fewer places": bool(s.kernel.extents[s.windows.axis] % s.windows.places),
            "whole vectors": not c.channels % s.lanes,
            "a last vector that is not whole": bool(c.channels % s.lanes),
            "two vectors": s.windows.vectors == 2,
            "places down the image": s.windows.axis == 1,
        }
        for c, s in found
        if s.windows is not None
    ]
    assert all(any(each[kind] for each in kinds) for kind in kinds[0])

"""Movement against NumPy: every sample of every op that is boxes, operands in any memory order, every size of element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from exact import agrees, drawn
from harness import EVERY_WIDTH

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.codegen.movement.tilings import TILINGS
from rlx_core.ir.dtypes import ALL, dtype
from rlx_core.ir.op import Op
from rlx_core.ops.creation import Full
from rlx_core.ops.movement import Concat, Flip, Narrow, Pad
from rlx_core.ops.rearrange import Diagonal, Repeat, Roll, Tile
from rlx_core.ops.structural import Expand, Reshape, Transpose
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.movement.boxes import emit_move, prepared

SAMPLES = [p for p in programs(tuple(TILINGS)) if p.is_static]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_moved_as_numpy_moves_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_move, program.node.op, drawn(program), isa)


def filled(shape: Sequence[int], name: str = "f32") -> np.ndarray:
    """An array whose elements all differ as far as its dtype allows."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return (numbers % 2 == 1) if name == "bool" else numbers.astype(dtype(name).numpy)


MEMORIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "dense": lambda x: x,
    "columns first": np.asfortranarray,
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
}

FORMS: dict[str, Op] = {
    "pad": Pad((1, 2), (0, 3)),
    "pad between": Pad((1, -1), (-2, 4), (2, 1)),
    "pad edge": Pad((2, 1), (-1, 20), mode="edge"),
    "pad reflect": Pad((40, 1), (100, 2), mode="reflect"),
    "pad wrap": Pad((3, 100), (0, 77), mode="wrap"),
    "narrow": Narrow(1, 1, 4, 2),
    "flip": Flip((0, 1)),
    "flip rows": Flip((1,)),
    "roll": Roll((5, -3), (0, 1)),
    "tile": Tile((2, 1, 3)),
    "repeat": Repeat(3, 1),
    "transpose": Transpose((1, 0)),
    "reshape": Reshape((-1,)),
    "expand": Expand((2, 19, 37)),
    "diagonal": Diagonal(-2),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("form", FORMS)
def test_operands_may_lie_in_any_order(form: str, memory: str) -> None:
    agrees(emit_move, FORMS[form], [MEMORIES[memory](filled((19, 37)))])


@pytest.mark.parametrize("name", [d.name for d in ALL])
@pytest.mark.parametrize("form", ["pad", "pad wrap", "flip", "roll", "transpose", "repeat"])
def test_elements_of_every_dtype_move(form: str, name: str) -> None:
    agrees(emit_move, FORMS[form], [filled((19, 37), name)])


def extents() -> Iterator[tuple[int, int]]:
    """Below, at and above the sides of squares, each beside a few others."""
    sides = (1, 3, 4, 7, 8, 16, 17, 31, 33, 64)
    for i, n in enumerate(sides):
        for step in (0, 3, 7):
            yield n, sides[(i + step) % len(sides)]


@pytest.mark.medium
@EVERY_WIDTH
def test_transpositions_reach_the_edges_of_squares(isa: Isa) -> None:
    for shape in extents():
        agrees(emit_move, Transpose((2, 1, 0)), [filled((*shape, 5))], isa)
        agrees(emit_move, Transpose((0, 2, 1)), [filled((2, *shape), "u8")], isa)


@pytest.mark.parametrize("lo", [-3, -1, 0, 1, 9])
@pytest.mark.parametrize("hi", [-2, 0, 11])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_any_width_agree_with_numpy(mode: Any, lo: int, hi: int) -> None:
    for n in (1, 2, 5):
        if n + lo + hi >= 0:
            agrees(emit_move, Pad((lo,), (hi,), mode=mode), [filled((n,))])
            if mode == "constant":
                agrees(emit_move, Pad((lo,), (hi + 2 * n,), (2,)), [filled((n,)), np.array(7, "f4")])


@EVERY_WIDTH
@pytest.mark.parametrize("name", ["u8", "f16", "f32", "f64"])
def test_a_transposition_of_two_axes_is_shared_out_in_bands(name: str, isa: Isa) -> None:
    for shape in ((192, 260), (300, 135), (64, 700), (700, 65)):
        agrees(emit_move, Transpose((1, 0)), [filled(shape, name)], isa)
    whole = Box((Axis(300, 4 * 200, 4), Axis(200, 4, 4 * 300)))
    bands = [band for band, _ in prepared(isa, whole, 4)]
    assert sum(band.size for band in bands) == whole.size
    assert sum(prod(a.count for a in band.axes[:-2]) for band in bands) == 5, "four of 64 rows, and 44 more"


def test_work_larger_than_a_unit_is_shared_out_whole() -> None:
    for op in (Concat(0), Concat(1)):
        agrees(emit_move, op, [filled((300, 257)), filled((300, 257)) + 5])
    agrees(emit_move, Flip((0,)), [filled((90_001,), "u8")])
    agrees(emit_move, Full((70_000,)), [np.array(2.5)])
    agrees(emit_move, Tile((50,)), [filled((1000,), "i64")])
    agrees(emit_move, Transpose((1, 0)), [filled((270, 130), "c128")])

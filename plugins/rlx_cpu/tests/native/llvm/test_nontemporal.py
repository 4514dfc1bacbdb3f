"""Results past the caches are the same bits: whole lines, what is left of lines, results that begin anywhere, several threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from attrs import evolve
from exact import agrees
from harness import EVERY_ISA, kernel

from rlx_core.codegen.loops import Kernel, Load
from rlx_core.codegen.meaning import loop_kernel
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import bf16, dtype
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.comparison import less
from rlx_core.ops.conversion import Cast
from rlx_core.ops.creation import Full
from rlx_core.ops.cumulative import Cumsum, LinearRecurrence
from rlx_core.ops.indexing import Gather
from rlx_core.ops.movement import Concat, Flip, Narrow, Pad
from rlx_core.ops.normalization import GroupNorm, RmsNorm
from rlx_core.ops.rearrange import Repeat
from rlx_core.ops.reduction import Max
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Expand, Transpose
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.llvm.isa import ISAS, Isa, available
from rlx_cpu.native.loops.rows import emit_loop
from rlx_cpu.native.loops.walk import Shape
from rlx_cpu.native.machine import MACHINE, CpuMachine, assumed, assuming
from rlx_cpu.native.movement.boxes import emit_move
from rlx_cpu.native.scans.cumulative import emit_running

MOVED: dict[str, tuple[Op, tuple[int, ...]]] = {
    "rows of whole lines": (Transpose((1, 0, 2)), (3, 5, 128)),
    "rows that end within a line": (Transpose((1, 0, 2)), (3, 5, 333)),
    "short rows": (Transpose((1, 0, 2)), (7, 9, 6)),
    "squares": (Transpose((1, 0)), (96, 192)),
    "squares and strips": (Transpose((1, 0)), (208, 77)),
    "squares of rows within a line": (Transpose((1, 0)), (77, 208)),
    "squares behind others": (Transpose((0, 2, 1)), (3, 64, 21)),
    "reversed": (Flip((0, 1)), (3, 600)),
    "every other": (Narrow(1, 3, 320, 2), (5, 643)),
    "every third": (Narrow(1, 1, 321, 3), (4, 962)),
    "every eighth": (Narrow(1, 0, 129, 8), (3, 1025)),
    "every ninth": (Narrow(1, 0, 65, 9), (3, 577)),
    "zeros around": (Pad((1, 5), (1, 700)), (4, 640)),
    "reflected": (Pad((2, 5), (1, 3), mode="reflect"), (5, 1033)),
    "one for many": (Expand((5, 320)), (5, 1)),
    "one for a few": (Repeat(3, 1), (4, 130)),
}


@pytest.fixture(autouse=True)
def _every_result_is_large() -> Iterator[None]:
    with assuming(CpuMachine(nontemporal_nbytes=1)):
        yield


def drawn(shape: tuple[int, ...], name: str = "f32") -> np.ndarray:
    numbers = np.random.default_rng(len(shape)).integers(0, 200, shape)
    return numbers.astype(dtype(name).numpy)


@EVERY_ISA
@pytest.mark.parametrize("name", ["u8", "bf16", "f32", "f64"])
@pytest.mark.parametrize("moved", MOVED)
def test_what_is_moved_past_the_caches_is_the_same(moved: str, name: str, isa: Isa) -> None:
    op, shape = MOVED[moved]
    x = drawn(shape, name)
    agrees(emit_move, op, [x], isa, shifts=(0, x.itemsize, 64 - x.itemsize))


@EVERY_ISA
def test_pieces_that_are_joined_within_a_line_are_both_there(isa: Isa) -> None:
    agrees(emit_move, Concat(1), [drawn((7, 300)), drawn((7, 333)), drawn((7, 1))], isa, shifts=(0, 4))
    agrees(emit_move, Full((999,)), [np.array(2.5)], isa, shifts=(0, 4))


@EVERY_ISA
def test_complex_numbers_may_begin_within_an_element(isa: Isa) -> None:
    agrees(emit_move, Flip((1,)), [drawn((4, 300), "c64")], isa, shifts=(0, 4, 8))
    agrees(emit_move, Transpose((1, 0)), [drawn((40, 64), "c64")], isa, shifts=(0, 4, 8))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_lines_are_streamed_where_there_are_instructions_for_it(isa: Isa) -> None:
    text = kernel(emit_move, Transpose((1, 0)), [drawn((64, 128))], isa).assembly
    assert ("movnt" in text, "sfence" in text) == (isa.arch == "x86_64",) * 2


ORDINARY = {"rows that end within a line", "bits", "rounded", "running columns within lines"}
"""Whose results are not streamed: rows begin anywhere in a line, or vectors become narrower when they are stored."""

COMPUTED: dict[str, tuple[Emit, Op, tuple[tuple[int, ...], ...]]] = {
    "a chain": (emit_loop, exp.op(), ((9001,),)),
    "two operands": (emit_loop, add.op(), ((40, 512), (40, 512))),
    "one operand along the other": (emit_loop, add.op(), ((40, 48), (48,))),
    "rows that end within a line": (emit_loop, add.op(), ((40, 77), (77,))),
    "bits": (emit_loop, less.op(), ((5, 640), (5, 640))),
    "rounded": (emit_loop, Cast(bf16), ((5, 640),)),
    "softmax": (emit_loop, Softmax(1), ((5, 704),)),
    "norm of groups": (emit_loop, GroupNorm(4), ((2, 8, 5, 32), (8,), (8,))),
    "transposed": (emit_loop, Transpose((1, 0)), ((192, 208),)),
    "gathered": (emit_loop, Gather(0), ((9, 64), (30,))),
    "running columns": (emit_running, Cumsum(0), ((40, 1200),)),
    "running columns of tables": (emit_running, Cumsum(1, reverse=True), ((9, 40, 48),)),
    "running rows": (emit_running, Cumsum(1, exclusive=True), ((37, 160),)),
    "recurrences": (emit_running, LinearRecurrence(0), ((40, 320), (40, 320))),
    "running columns within lines": (emit_running, Cumsum(0), ((40, 333),)),
}


@EVERY_ISA
@pytest.mark.parametrize("form", COMPUTED)
def test_what_is_computed_past_the_caches_is_the_same(form: str, isa: Isa) -> None:
    emit, op, shapes = COMPUTED[form]
    operands = [drawn(shape) / np.float32(50) for shape in shapes]
    if isinstance(op, Gather):
        operands[1] = (operands[1] * 2).astype(np.int32)
    streamed = kernel(emit, op, operands, isa)
    with assuming(CpuMachine(nontemporal_nbytes=1 << 40)):
        ordinary = kernel(emit, op, operands, isa)
    assert ("movnt" in streamed.assembly, "movnt" in ordinary.assembly) == (form not in ORDINARY, False)
    (wanted,) = ordinary(*operands)
    for threads, shift in ((1, 0), (3, 0), (2, wanted.itemsize)):
        (found,) = streamed(*operands, threads=threads, shift=shift)
        assert found.tobytes() == wanted.tobytes()


def test_a_result_in_the_place_of_its_operand_is_not_streamed() -> None:
    x = drawn((9001,)) / np.float32(50)
    made = kernel(emit_loop, exp.op(), [x], available()[0])
    (found,) = made(x, in_place={0: (0,)})
    np.testing.assert_array_equal(found, made(x)[0])


@pytest.mark.parametrize(("op", "is_once"), [(Softmax(1), False), (RmsNorm((1,)), False), (Max((1,)), True)])
def test_what_comes_is_asked_for_and_the_next_row_while_one_is_near(op: Op, is_once: bool) -> None:
    ahead = (MACHINE.loops.prefetch_nbytes,) * 2
    for shape, expected in {
        (1024, 512): ahead if is_once else (0, 2048),
        (16, 512): (0, 0),
        (9, MACHINE.loops.resident_row_nbytes): ahead,
    }.items():
        walk = Shape.of(loop_of(op, shape), available()[0])
        loads = [value for value in walk.kernel.values if isinstance(value, Load)]
        assert {tuple(walk.prefetch_distance(load, loop) for loop in range(2)) for load in loads} == {expected}


@EVERY_ISA
def test_halves_of_rows_are_streamed_each_by_where_it_begins(isa: Isa) -> None:
    kernel_, large = loop_of(exp.op(), (40, 256)), evolve(isa, machine=assumed())
    (store,) = kernel_.stores
    for offset, is_at_line in ((0, True), (64, True), (32, False)):
        moved = evolve(kernel_, stores=(evolve(store, offset=offset),))
        assert bool(Shape.of(moved, large).nontemporal) == is_at_line


def loop_of(op: Op, shape: tuple[int, ...]) -> Kernel:
    builder = Builder()
    x = builder.input("x", TensorType(dtype("f32"), shape))
    node = builder.emit(op, [x])[0].node
    return loop_kernel(node, Layout((Place.dense(x.type),), tuple(Place.dense(t) for t in node.types)))

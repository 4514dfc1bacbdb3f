"""Movement of dynamic shapes: the number of boxes is fixed, their extents and layouts are run-time arguments.

The kind of a row of a box (a copy, zeros, a broadcast element, strided elements) is part of the code, everything else is an
argument. So one function serves all movements with the same number of boxes and the same kinds of rows. Rows that are short, or
permuted in registers, are part of the code, and so are transposed squares, and axes within one step along an unknown axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final, Literal

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.codegen.movement.tilings import boxes_of
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.unknown import said, unknown
from rlx_core.ir.bind import bind_op
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import MOST_PARTS, Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.movement.mover import Mover, canonical, in_loop_order, is_transposed
from rlx_cpu.native.movement.mover_rows import LONGEST_STEP, Rows

SHORT_ROW: Final = 64
"""Bytes of rows that code for their length moves in fewer steps than it takes to ask how long they are."""

FEW_ROWS: Final = 64
"""Rows for which that does not matter."""

Kind = Literal["copy", "spread", "apart"] | tuple[Axis, ...]
"""The kind of a row: a copy or zeros, one broadcast element, strided elements, or exactly these axes."""


@frozen
class Part:
    """A box as far as it is known at compile time.

    Attributes:
        itemsize: Bytes of one element of the movement.
        outer: Number of axes around the row.
    """

    operand: int | None
    result: int
    itemsize: int
    kind: Kind
    outer: int


@frozen(eq=False)
class MoveForm:
    """A movement for all sizes.

    Attributes:
        node: The movement's node.
        parts: Its boxes.
    """

    node: Node
    parts: tuple[Part, ...]
    isa: Isa

    @property
    def key(self) -> str:
        return f"{len(self.node.operands)} operands moved as {self.parts}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        boxes = boxes_for(self.node, layout, sizes, self.isa)
        if boxes is None or tuple(part for part, _ in boxes) != self.parts:
            return None
        numbers: dict[str, int] = {}
        for number, (part, box) in enumerate(boxes):
            numbers |= {f"rows{number}": _rows(part, box), f"to{number}": box.to, f"start{number}": box.start}
            axes = box.axes if isinstance(part.kind, str) else box.axes[: part.outer]
            for i, axis in enumerate(axes):
                suffix = f"{number}_{i}"
                numbers |= {f"count{suffix}": axis.count, f"to{suffix}": axis.to, f"from{suffix}": axis.source}
        rows = sum(_rows(part, box) for part, box in boxes)
        nbytes = sum(box.size * part.itemsize for part, box in boxes)
        return Call(
            said(**numbers),
            uses_threads=rows > 1 and nbytes >= self.isa.machine.serial_nbytes,
            parts=max(1, min(MOST_PARTS, rows, nbytes // self.isa.machine.movement.unit_nbytes)),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        b = ir.new_function(module, KERNEL, name)
        buffers, part, parts, _ = b.function.args
        for number, each in enumerate(self.parts):
            to = offset(b, pointer_at(b, buffers, len(self.node.operands) + each.result), unknown(f"to{number}"))
            source = None
            if each.operand is not None:
                source = offset(b, pointer_at(b, buffers, each.operand), unknown(f"start{number}"))
            with counting(b, *share(b, unknown(f"rows{number}"), part, parts)) as row:
                self._move_row(b, number, row, to, source)
        b.ret_void()
        return Emitted(name)

    def _move_row(
        self, b: ir.IRBuilder, number: int, row: ir.LlvmValue, to: ir.LlvmValue, source: ir.LlvmValue | None
    ) -> None:
        """Move one row of a box, or one block of fixed axes, whose index runs over the outer axes."""
        part = self.parts[number]
        for i in reversed(range(part.outer)):
            count = sized(b, unknown(f"count{number}_{i}"))
            position, row = b.urem(row, count), b.udiv(row, count)
            to = offset(b, to, (position, unknown(f"to{number}_{i}")))
            source = source and offset(b, source, (position, unknown(f"from{number}_{i}")))
        if isinstance(part.kind, tuple):
            Mover(b, self.isa, part.itemsize).move(to, source, part.kind)
            return
        rows, last = Rows(b, self.isa, part.itemsize), f"{number}_{part.outer}"
        count = sized(b, unknown(f"count{last}"))
        if source is None or part.kind == "copy":
            rows.whole(to, source, count)
        else:
            with counting(b, 0, count) as position:
                element = source if part.kind == "spread" else offset(b, source, (position, unknown(f"from{last}")))
                value = b.load(element, typ=rows.element, align=rows.alignment)
                b.store(value, offset(b, to, (position, unknown(f"to{last}"))), align=rows.alignment)


def sized_move(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> MoveForm | None:
    """Finds the form of a movement."""
    boxes = boxes_for(node, layout, sizes, isa)
    return MoveForm(node, tuple(part for part, _ in boxes), isa) if boxes else None


def boxes_for(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> list[tuple[Part, Box]] | None:
    """The boxes for some sizes, each with what code knows of it; `None` where code for the size moves them better."""
    boxes: list[tuple[Part, Box]] = []
    for box in boxes_of(bind_op(node.op, sizes), layout):
        simple, itemsize = canonical(box, layout.results[box.result].type.dtype.itemsize)
        simple = evolve(simple, axes=in_loop_order(simple.axes, itemsize))
        max_elements = isa.machine.movement.unit_nbytes // itemsize
        within = axes_within(simple, step_of(node.types[box.result], layout.results[box.result]), max_elements)
        kind: Kind = within or kind_of(simple, itemsize)
        inner = len(kind) if isinstance(kind, tuple) else 1
        if inner > 1 and prod(axis.count for axis in simple.axes[-inner:]) > max_elements:
            return None  # large squares are cut into bands
        for piece in in_blocks(simple, max_elements) if kind in ("copy", "spread") else (simple,):
            padded = of_rank(piece, node.types[box.result].rank + 2)
            if min(min(a.to, a.source) for a in padded.axes[:-inner]) < 0:
                return None
            boxes.append((Part(box.operand, box.result, itemsize, kind, len(padded.axes) - inner), padded))
    return boxes


def step_of(type: TensorType, place: Place) -> int:
    """Return the bytes between neighbours along the innermost axis of unknown size; 0 if there is none."""
    return min((s for s, n in zip(place.strides, type.shape, strict=True) if not is_known(n)), default=0)


def axes_within(box: Box, step: int, max_elements: int) -> tuple[Axis, ...] | None:
    """Return the innermost axes within one step along an axis of unknown size, up to `max_elements` elements.

    Their sizes are the same for all sizes of the program. `None` if there are no such axes.
    """
    count, inner = 1, 0
    for axis in reversed(box.axes):
        count *= axis.count
        if not 0 < axis.to * axis.count < step or count > max_elements:
            break
        inner += 1
    return box.axes[-inner:] if inner else None


def kind_of(box: Box, itemsize: int) -> Kind:
    """Return the kind of a box's rows."""
    if box.operand is not None and is_transposed(box.axes, itemsize):
        return box.axes[-2:]
    last = box.axes[-1]
    is_short = last.count * itemsize < SHORT_ROW and prod(axis.count for axis in box.axes[:-1]) > FEW_ROWS
    is_near = last.source % itemsize == 0 and -itemsize <= last.source <= LONGEST_STEP * itemsize
    if is_short:
        return (last,)
    if last.to != itemsize:
        return "apart" if box.operand is not None else (last,)
    if box.operand is None or last.source == itemsize:
        return "copy"
    if last.source == 0:
        return "spread"
    return (last,) if is_near else "apart"


def in_blocks(box: Box, block_elements: int) -> Iterator[Box]:
    """Yield long rows in blocks for distribution over threads (possibly no blocks), and the remainder."""
    *outer, last = box.axes
    blocks = last.count // block_elements if last.count > 2 * block_elements else 0
    done = blocks * block_elements
    in_block, remainder = evolve(last, count=block_elements if blocks else 0), evolve(last, count=last.count - done)
    by_block = Axis(blocks, block_elements * last.to, block_elements * last.source)
    yield evolve(box, axes=(*outer, by_block, in_block))
    yield evolve(box, axes=(*outer, remainder), to=box.to + done * last.to, start=box.start + done * last.source)


def of_rank(box: Box, rank: int) -> Box:
    """A box with axes of one step in front."""
    return evolve(box, axes=(*(Axis(1, 0, 0) for _ in range(rank - len(box.axes))), *box.axes))


def _rows(part: Part, box: Box) -> int:
    return prod(axis.count for axis in box.axes[: part.outer])

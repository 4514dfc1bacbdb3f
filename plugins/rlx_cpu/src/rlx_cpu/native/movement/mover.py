"""Code that moves one box: nested loops, and an innermost one chosen by how its two sides lie.

Only bits move, so elements are integers of 1, 2, 4 or 8 bytes whatever they mean. The last axis is the one along which the
result is contiguous. Where the operand is contiguous along another one, squares are transposed in registers; otherwise rows are
moved (`mover_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlx_core.codegen.movement.boxes import Axis, Box, simplified
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, address, least, prefetch
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import store_nontemporal
from rlx_cpu.native.llvm.simd import counting, index, offset, transposed
from rlx_cpu.native.movement.mover_rows import Rows, Stores

WIDEST = 8
"""Bytes of the largest element that moves in one piece; a complex number of 16 is two."""

SMALLEST_SQUARE = 4
"""Elements along both sides from which a transposition in registers pays."""

OPEN_LINES = 8
"""Cache lines that a processor collects at a time: squares that fill lines by parts go past the caches to no more than these."""


def canonical(box: Box, itemsize: int) -> tuple[Box, int]:
    """Return a box in words with its axes merged, and the size of a word; zeros have the layout of the result."""
    if itemsize > WIDEST:
        pair = Axis(itemsize // WIDEST, WIDEST, WIDEST if box.operand is not None else 0)
        box, itemsize = evolve(box, axes=(*box.axes, pair)), WIDEST
    if box.operand is None:
        box = evolve(box, axes=tuple(evolve(a, source=a.to) for a in box.axes))
    return simplified(box, itemsize), itemsize


def is_transposed(axes: Sequence[Axis], itemsize: int) -> bool:
    """Return whether the last two axes are contiguous in the operand and in the result, each along one."""
    if len(axes) < 2:
        return False
    other, last = axes[-2], axes[-1]
    is_crossed = last.to == itemsize and last.source != itemsize and other.source == itemsize
    return is_crossed and last.source != 0 and min(other.count, last.count) >= SMALLEST_SQUARE


def in_loop_order(axes: Sequence[Axis], itemsize: int) -> tuple[Axis, ...]:
    """The axes with the one that is contiguous in the operand moved next to the last, if the box is a transposition."""
    last = axes[-1]
    for place, axis in enumerate(axes[:-1]):
        moved = (*axes[:place], *axes[place + 1 : -1], axis, last)
        if is_transposed(moved, itemsize):
            return moved
    return tuple(axes)


@frozen(eq=False)
class Mover:
    """Moves boxes of elements of `itemsize` bytes: 1, 2, 4 or 8."""

    builder: ir.IRBuilder
    isa: Isa
    itemsize: int
    stores: Stores = Stores.ORDINARY

    @property
    def rows(self) -> Rows:
        return Rows(self.builder, self.isa, self.itemsize, self.stores)

    @property
    def lanes(self) -> int:
        """Elements of a vector; of small ones a part of it, so that a square of vectors stays in registers."""
        return min(self.isa.vector_bytes // self.itemsize, 16)

    def move(self, to: ir.LlvmValue, source: ir.LlvmValue | None, axes: Sequence[Axis]) -> None:
        """Copy from `source`, or clear, along `axes`, which `in_loop_order` has ordered."""
        if source is not None and is_transposed(axes, self.itemsize):
            self._nest(to, source, axes[:-2], axes[-2:])
        else:
            self._nest(to, source, axes[:-1], axes[-1:])

    def _nest(
        self, to: ir.LlvmValue, source: ir.LlvmValue | None, outer: Sequence[Axis], inner: Sequence[Axis]
    ) -> None:
        if not outer:
            if source is not None and len(inner) == 2:
                self._square(to, source, *inner)
            else:
                self.rows.row(to, source, inner[-1])
            return
        axis = outer[0]
        with counting(self.builder, 0, axis.count) as i:
            inner_source = None if source is None else self._at(source, i, axis.source)
            self._nest(self._at(to, i, axis.to), inner_source, outer[1:], inner)

    def _at(self, pointer: ir.LlvmValue, i: ir.LlvmValue | int, stride: int) -> ir.LlvmValue:
        return offset(self.builder, pointer, i * stride if isinstance(i, int) else (i, stride))

    # ------------------------------------------------------------------------------------- squares

    def _square(self, to: ir.LlvmValue, source: ir.LlvmValue, down: Axis, along: Axis) -> None:
        """A transposition: `down` is contiguous in the operand, `along` in the result."""
        lanes = self.lanes
        while lanes > min(down.count, along.count):
            lanes //= 2
        is_nontemporal = self._wants_nontemporal(lanes, along.count)
        step = CACHE_LINE // self.itemsize if is_nontemporal else lanes
        high, wide = down.count // lanes * lanes, along.count // step * step
        squares = evolve(down, count=high), evolve(along, count=wide)
        (self._nontemporal if is_nontemporal else self._tiles)(to, source, *squares, lanes)
        # What squares do not reach: a strip at the end of either axis.
        if wide < along.count:
            strip = evolve(along, count=along.count - wide)
            self._strip(self._at(to, wide, along.to), self._at(source, wide, along.source), squares[0], strip)
        if high < down.count:
            strip = evolve(down, count=down.count - high)
            self._strip(self._at(to, high, down.to), self._at(source, high, down.source), strip, along)

    def _wants_nontemporal(self, lanes: int, count: int) -> bool:
        """Return whether squares of so many lanes are stored nontemporally into rows of `count` elements."""
        line = CACHE_LINE // self.itemsize
        return self.stores is Stores.NONTEMPORAL and count >= line and (lanes == line or lanes <= OPEN_LINES)

    def _tiles(self, to: ir.LlvmValue, source: ir.LlvmValue, down: Axis, along: Axis, lanes: int) -> None:
        """Move squares in tiles: a cache line is fully used while it is in L1, and likewise its page's TLB entry."""
        b, side = self.builder, max(lanes, self.isa.machine.movement.tile)
        with counting(b, 0, down.count, side) as top, counting(b, 0, along.count, side) as left:
            bottom, right = (self._until(x, side, axis.count) for x, axis in ((top, down), (left, along)))
            with counting(b, top, bottom, lanes) as i:
                to_i, source_i = self._at(to, i, down.to), self._at(source, i, down.source)
                with counting(b, left, right, lanes) as j:
                    place = self._at(to_i, j, along.to)
                    for k, row in enumerate(self._transposed(self._at(source_i, j, along.source), along, lanes)):
                        b.store(row, address(b, place, k * down.to), align=self.rows.alignment)

    def _nontemporal(self, to: ir.LlvmValue, source: ir.LlvmValue, down: Axis, along: Axis, lanes: int) -> None:
        """Squares side by side that fill lines of the result past the caches; lines of the operand are read whole."""
        b, line, ahead = self.builder, CACHE_LINE // self.itemsize, self.isa.machine.movement.prefetch_lines
        with counting(b, 0, along.count, line) as j:
            to_j, source_j = self._at(to, j, along.to), self._at(source, j, along.source)
            with counting(b, 0, down.count, lanes) as i:
                place, read = self._at(to_j, i, down.to), self._at(source_j, i, down.source)
                for first in range(0, line, lanes):
                    for k in range(first, first + lanes):
                        prefetch(b, address(b, read, (k + ahead) * along.source), locality=2)
                    rows = self._transposed(address(b, read, first * along.source), along, lanes)
                    for k, row in enumerate(rows):
                        store_nontemporal(b, row, address(b, place, k * down.to + first * along.to))

    def _transposed(self, source: ir.LlvmValue, along: Axis, lanes: int) -> list[ir.LlvmValue]:
        """A square of the operand, transposed."""
        b, type = self.builder, ir.VectorType(ir.IntType(8 * self.itemsize), lanes)
        rows = [b.load(address(b, source, k * along.source), typ=type, align=self.rows.alignment) for k in range(lanes)]
        return transposed(b, rows)

    def _until(self, first: ir.LlvmValue, side: int, end: int) -> ir.LlvmValue:
        """Return the end of a tile of `side` that begins at `first`: at most `end`."""
        b = self.builder
        after = b.add(first, index(side))
        return after if end % side == 0 else least(b, after, index(end))

    def _strip(self, to: ir.LlvmValue, source: ir.LlvmValue, down: Axis, along: Axis) -> None:
        outer, inner = (down, along) if down.count <= along.count else (along, down)
        with counting(self.builder, 0, outer.count) as i:
            self.rows.singly(self._at(to, i, outer.to), self._at(source, i, outer.source), inner)

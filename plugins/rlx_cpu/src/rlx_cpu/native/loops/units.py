"""The units of a kernel: the grid positions of a unit, and the code at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, scaled
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.loops.walk import Position, Shape

Body: TypeAlias = "Callable[[Sequence[Position], ir.LlvmValue | None], None]"
"""Emits the code for the vectors of a unit: one, or a strip of adjacent ones; and the block, if the unit is one."""


@frozen(eq=False)
class Units:
    """Finds a unit's place.

    Attributes:
        tiled: Writes a band of tiles at a place on the outer axes, for kernels with transposed loads.
    """

    builder: ir.IRBuilder
    shape: Shape
    tiled: Callable[[dict[int, ir.LlvmValue], ir.LlvmValue], None]

    def at(self, unit: ir.LlvmValue, body: Body) -> None:
        """One unit: `body` is given its place on the grid, and its block if it is one."""
        b, shape = self.builder, self.shape
        if shape.goes_by_pieces:
            remaining, piece = self.split(unit, shape.units // shape.pieces)
        else:
            piece, remaining = self.split(unit, shape.pieces)
        index: dict[int, ir.LlvmValue] = {}
        for axis in reversed(shape.outer):
            index[axis], remaining = self.split(remaining, shape.steps(axis))
        if shape.crossing is not None:
            self.tiled(index, piece)
        elif shape.rows_at_once > 1:
            self._rows(index, body)
        elif shape.block is not None:
            body([Position(index, shape.lanes)], piece)
        elif shape.is_in_row:
            body([Position(index, shape.lanes)], None)
        else:
            self.side_by_side(index, piece, body)
        assert not b.block.is_terminated, "a unit falls through to the next"

    def split(self, number: ir.LlvmValue, size: int) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        b = self.builder
        if size == 1:
            return ir.LlvmConstant(I64, 0), number
        count = sized(b, size)
        return b.urem(number, count), b.udiv(number, count)

    def _unknown(self, index: dict[int, ir.LlvmValue], start: ir.LlvmValue, body: Body) -> None:
        """A vector of rows, of which the last may have fewer, where the number of rows comes with the call."""
        b, shape = self.builder, self.shape
        left = b.sub(sized(b, shape.size), start)
        with b.if_else(b.icmp_signed(">=", left, ir.LlvmConstant(I64, shape.lanes))) as (then, otherwise):
            with then:
                body([Position({**index, shape.lane: start}, shape.lanes)], None)
            with otherwise:
                body([Position({**index, shape.lane: start}, left)], None)

    def side_by_side(self, index: dict[int, ir.LlvmValue], piece: ir.LlvmValue, body: Body) -> None:
        """A strip of vectors of rows, one row per lane; the last strip may have fewer, and its last vector too."""
        b, shape = self.builder, self.shape
        width = shape.strip * shape.lanes
        start = scaled(b, piece, width)
        if not shape.has_known_lanes:
            self._unknown(index, start, body)
            return

        def strip(rows: int) -> None:
            self._places({**index, shape.lane: start}, rows, body)

        left = shape.size % width
        if not left:
            strip(width)
        elif shape.size < width:
            strip(left)
        else:
            is_last = b.icmp_unsigned("==", piece, ir.LlvmConstant(I64, shape.pieces - 1))
            with b.if_else(is_last) as (then, otherwise):
                with then:
                    strip(left)
                with otherwise:
                    strip(width)

    def _rows(self, index: dict[int, ir.LlvmValue], body: Body) -> None:
        """All vectors of several short rows."""
        b, shape, axis = self.builder, self.shape, self.shape.outer[-1]
        index = {**index, axis: scaled(b, index[axis], shape.rows_at_once), shape.lane: ir.LlvmConstant(I64, 0)}
        rows, firsts = range(shape.rows_at_once), range(0, shape.size, shape.lanes)
        steps = [{axis: row, shape.lane: first} for row in rows for first in firsts]
        body([Position(index, min(shape.lanes, shape.size - each[shape.lane]), steps=each) for each in steps], None)

    def _places(self, index: dict[int, ir.LlvmValue], rows: int, body: Body) -> None:
        """The vectors of a strip, at one place or at several side by side, of which the last unit may have fewer."""
        b, lane, lanes, windows = self.builder, self.shape.lane, self.shape.lanes, self.shape.windows

        def at_places(index: dict[int, ir.LlvmValue], places: Sequence[Mapping[int, int]]) -> None:
            firsts = range(0, rows, lanes)
            body(
                [Position(index, min(lanes, rows - f), steps={**place, lane: f}) for place in places for f in firsts],
                None,
            )

        if windows is None:
            at_places(index, [{}])
            return
        axis, count = windows.axis, windows.places
        index = {**index, axis: scaled(b, index[axis], count)}
        places = [{axis: k} for k in range(count)]
        left = self.shape.kernel.extents[axis] % count
        if not left:
            at_places(index, places)
            return
        last = self.shape.kernel.extents[axis] - left
        with b.if_else(b.icmp_unsigned("==", index[axis], ir.LlvmConstant(I64, last))) as (then, otherwise):
            with then:
                at_places(index, places[:left])
            with otherwise:
                at_places(index, places)

"""Bands of tiles: the units of an element-wise kernel with transposed loads, which go through square tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_core.codegen.schedule import Nest
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I8, Variable, counting, index, least, scaled, variable
from rlx_cpu.native.loops.tiles import TransposedTiles
from rlx_cpu.native.loops.values import KernelValues
from rlx_cpu.native.loops.walk import Position


@frozen(eq=False)
class Bands:
    """Code for bands of tiles.

    Attributes:
        step: Computes and stores the values at one vector of a line.
    """

    values: KernelValues
    step: Callable[[Nest, Sequence[Position], dict[int, list[Variable]], int], None]

    def write(self, place: dict[int, ir.LlvmValue], piece: ir.LlvmValue) -> None:
        """A band of tiles of an element-wise kernel with transposed loads."""
        b, shape = self.values.builder, self.values.shape
        axis, side = shape.crossing, shape.side
        assert axis is not None, "tiles cross the lanes"
        zero, whole_side = index(0), index(side)
        size = index(shape.kernel.extents[axis])
        start = scaled(b, place[axis], side * shape.sizes.tile_rows)
        end = least(b, b.add(start, index(side * shape.sizes.tile_rows)), size)
        wide = side * shape.sizes.tile_columns
        left_end = scaled(b, piece, wide)
        right_end = least(b, b.add(left_end, index(wide)), index(shape.size))
        self.values.tiles = TransposedTiles(b, shape, self.values.memory, self._places(axis))
        with counting(b, start, end, side) as first, counting(b, left_end, right_end, side) as column:
            rows = least(b, b.sub(size, first), whole_side)
            columns = least(b, b.sub(index(shape.size), column), whole_side)
            is_whole = b.and_(b.icmp_signed("==", rows, whole_side), b.icmp_signed("==", columns, whole_side))
            self.values.tiles.fill(
                Position({**place, axis: first, shape.lane: column}, shape.lanes), rows, columns, is_whole
            )
            with counting(b, zero, rows) as row:
                self._line({**place, axis: b.add(first, row)}, column, row, columns)

    def _line(
        self, line: dict[int, ir.LlvmValue], column: ir.LlvmValue, row: ir.LlvmValue, columns: ir.LlvmValue
    ) -> None:
        """Emit a kernel's code along one line of a tile."""
        b, shape = self.values.builder, self.values.shape
        assert shape.crossing is not None, "tiles cross the lanes"
        (nest,) = shape.plan.nests
        self.values.start_unit()
        below = {**line, shape.crossing: b.add(line[shape.crossing], index(shape.side))}
        for number in nest.stores:
            store = shape.kernel.stores[number]
            self.values.memory.prefetch_result(store, Position({**below, shape.lane: column}, shape.lanes))
        vectors = b.sub(columns, b.urem(columns, index(shape.lanes)))
        with counting(b, 0, vectors, shape.lanes) as along:
            here = {**line, shape.lane: b.add(column, along)}
            self.step(nest, [Position(here, shape.lanes, tile=(row, along))], {}, 0)
        left = shape.size % shape.lanes
        if left:
            with b.if_then(b.icmp_signed("<", vectors, columns)):
                here = {**line, shape.lane: b.add(column, vectors)}
                self.step(nest, [Position(here, left, tile=(row, vectors))], {}, 0)

    def _places(self, axis: int) -> dict[int, ir.LlvmValue]:
        """Stack memory for the tiles, padded for a vector that reads beyond the last element."""
        shape = self.values.shape
        places: dict[int, ir.LlvmValue] = {}
        for number in shape.transposed_loads(axis):
            nbytes = shape.side * shape.side * shape.kernel.values[number].dtype.itemsize + 8 * shape.lanes
            tile = variable(self.values.builder, ir.ArrayType(I8, nbytes))
            tile.align = ALIGNMENT
            places[number] = tile
        return places

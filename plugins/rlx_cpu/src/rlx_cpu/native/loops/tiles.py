"""Transposing loads through square tiles: rows of the operand are read whole, transposed in registers, and laid out for lanes.

A load that is contiguous along another axis than the lanes would be one element a lane. Instead a tile of as many rows as
a cache line has elements is transposed at once; the kernel then reads its lanes from the tile, which stays in L1.
"""

from __future__ import annotations

from rlx_core.codegen.loops import Load
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address, counting, memory_type, prefetch, scaled
from rlx_cpu.native.llvm.simd import transposed
from rlx_cpu.native.loops.memory import KernelBuffers
from rlx_cpu.native.loops.walk import Position, Shape


@frozen(eq=False)
class TransposedTiles:
    """The tiles of one kernel, one for each transposed load."""

    builder: ir.IRBuilder
    shape: Shape
    memory: KernelBuffers
    places: dict[int, ir.LlvmValue]
    """Load → its tile: `side` rows of the crossing axis, each of `side` elements along the lanes."""

    def fill(self, position: Position, rows: ir.LlvmValue, columns: ir.LlvmValue, is_whole: ir.LlvmValue) -> None:
        """Transpose the tiles at a place; `rows` and `columns` of it exist."""
        b = self.builder
        with b.if_else(is_whole) as (full, part):
            with full:
                for number in self.places:
                    self._whole(number, position)
            with part:
                for number in self.places:
                    self._part(number, position, rows, columns)

    def _load(self, number: int) -> Load:
        load = self.shape.kernel.values[number]
        assert isinstance(load, Load), "tiles are of loads"
        return load

    def _whole(self, number: int, position: Position) -> None:
        """A whole tile in square blocks that fit into registers."""
        b, shape, load = self.builder, self.shape, self._load(number)
        start = self.memory.place(load, position)
        itemsize = load.dtype.itemsize
        block = min(16, shape.isa.vector_bytes // itemsize, shape.side)
        type = memory_type(load.dtype, block)
        step = load.strides[shape.lane]
        with (
            counting(b, 0, shape.side, block) as column,
            counting(b, 0, shape.side, block) as row,
        ):
            source = address(b, start, b.add(scaled(b, column, step), scaled(b, row, itemsize)))
            lines = [b.load(address(b, source, k * step), typ=type, align=itemsize) for k in range(block)]
            for k in range(block):
                prefetch(b, address(b, source, k * step + shape.side * itemsize))
            line = shape.side * itemsize
            target = address(b, self.places[number], b.add(scaled(b, row, line), scaled(b, column, itemsize)))
            for k, column_ in enumerate(transposed(b, lines)):
                b.store(column_, address(b, target, k * line), align=itemsize)

    def _part(self, number: int, position: Position, rows: ir.LlvmValue, columns: ir.LlvmValue) -> None:
        """A tile at an edge, element by element."""
        b, shape, load = self.builder, self.shape, self._load(number)
        start = self.memory.place(load, position)
        itemsize = load.dtype.itemsize
        type = memory_type(load.dtype)
        zero = ir.LlvmConstant(I64, 0)
        with counting(b, zero, columns) as column, counting(b, zero, rows) as row:
            away = b.add(scaled(b, column, load.strides[shape.lane]), scaled(b, row, itemsize))
            one = b.load(address(b, start, away), typ=type, align=itemsize)
            b.store(one, self._cell(number, row, column), align=itemsize)

    def _cell(self, number: int, row: ir.LlvmValue, column: ir.LlvmValue) -> ir.LlvmValue:
        b, itemsize = self.builder, self._load(number).dtype.itemsize
        line = b.add(scaled(b, row, self.shape.side), column)
        return address(b, self.places[number], scaled(b, line, itemsize))

    def read(self, number: int, position: Position) -> ir.LlvmValue:
        """The lanes of a load from its tile; lanes that do not exist hold what was there."""
        assert position.tile is not None, "tiles are read where they were filled"
        load = self._load(number)
        type = memory_type(load.dtype, self.shape.lanes)
        lanes = self.builder.load(self._cell(number, *position.tile), typ=type, align=load.dtype.itemsize)
        return self.memory.to_register(load.dtype, lanes)

"""Code that moves one box: nested loops, and an innermost one chosen by how its two sides lie.

Only bits move, so elements are integers of 1, 2, 4 or 8 bytes whatever they mean. The last axis is the one along which the
result is contiguous. Where the operand is contiguous along it too, whole rows are copied; where it is contiguous along
another one, squares are transposed in registers; a reversed row is reversed a vector at a time, a repeated element is stored
in all lanes; anything else is moved element by element.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlx_cpu.native import ir
from rlx_cpu.native.boxes import Axis
from rlx_cpu.native.build import I8, I64, VOID, address, declare, splat
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.simd import counting, index, offset, transposed

__all__ = ["SIDE", "Mover", "in_loop_order", "is_transposed"]

SMALLEST_SQUARE = 4
"""Elements along both sides from which a transposition in registers pays."""

SIDE = 64
"""Elements along both sides of a tile of squares: a cache line of the smallest."""

UNROLL = 4
"""Elements that one pass moves where they are moved one by one."""


def is_transposed(axes: Sequence[Axis], itemsize: int) -> bool:
    """Whether the last two axes are contiguous in the operand and in the result, each along one."""
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

    @property
    def element(self) -> ir.IntType:
        return ir.IntType(8 * self.itemsize)

    @property
    def alignment(self) -> int:
        """What every access may count on: 8 bytes may be a complex number of two floats."""
        return min(self.itemsize, 4)

    @property
    def lanes(self) -> int:
        """Elements of a vector; of small ones a part of it, so that a square of vectors stays in registers."""
        return min(self.isa.vector_bytes // self.itemsize, 16)

    def move(self, to: ir.Value, source: ir.Value | None, axes: Sequence[Axis]) -> None:
        """Copy from `source`, or clear, along `axes`, which `in_loop_order` has ordered."""
        if source is not None and is_transposed(axes, self.itemsize):
            self._nest(to, source, axes[:-2], axes[-2:])
        else:
            self._nest(to, source, axes[:-1], axes[-1:])

    def _nest(self, to: ir.Value, source: ir.Value | None, outer: Sequence[Axis], inner: Sequence[Axis]) -> None:
        if not outer:
            if source is not None and len(inner) == 2:
                self._square(to, source, *inner)
            else:
                self.row(to, source, inner[-1])
            return
        axis = outer[0]
        with counting(self.builder, 0, axis.count) as i:
            there = None if source is None else self._at(source, i, axis.source)
            self._nest(self._at(to, i, axis.to), there, outer[1:], inner)

    def _at(self, pointer: ir.Value, i: ir.Value, stride: int) -> ir.Value:
        return offset(self.builder, pointer, (i, stride))

    # ---------------------------------------------------------------------------------------- rows

    def row(self, to: ir.Value, source: ir.Value | None, axis: Axis) -> None:
        """One axis from end to end; zeros where there is no source."""
        size = self.itemsize
        if axis.to != size:
            self._singly(to, source, axis)
        elif source is None:
            self._clear(to, axis.count * size)
        elif axis.source == size:
            self._copy(to, source, axis.count * size)
        elif axis.source == 0:
            self._spread(to, source, axis.count)
        elif axis.source == -size:
            self._reversed(to, source, axis.count)
        else:
            self._singly(to, source, axis)

    def _copy(self, to: ir.Value, source: ir.Value, nbytes: int) -> None:
        """A row that is dense on both sides; short ones become a few moves, long ones the C library's."""
        b = self.builder
        function = declare(b.module, "llvm.memcpy.p0.p0.i64", VOID, [to.type, to.type, I64, ir.IntType(1)])
        b.call(function, [to, source, index(nbytes), ir.Constant(ir.IntType(1), 0)])

    def _clear(self, to: ir.Value, nbytes: int) -> None:
        b = self.builder
        function = declare(b.module, "llvm.memset.p0.i64", VOID, [to.type, I8, I64, ir.IntType(1)])
        b.call(function, [to, ir.Constant(I8, 0), index(nbytes), ir.Constant(ir.IntType(1), 0)])

    def _spread(self, to: ir.Value, source: ir.Value, count: int) -> None:
        """One element in all places of a row."""
        b, size = self.builder, self.itemsize
        value = b.load(source, typ=self.element, align=self.alignment)
        lanes = self.isa.vector_bytes // size
        whole = count // lanes * lanes
        if whole:
            vector = splat(b, value, lanes)
            with counting(b, 0, whole, lanes) as i:
                b.store(vector, offset(b, to, (i, size)), align=self.alignment)
        for k in range(whole, count):
            b.store(value, address(b, to, k * size), align=self.alignment)

    def _reversed(self, to: ir.Value, source: ir.Value, count: int) -> None:
        """A row from its end, which is where `source` points."""
        b, size = self.builder, self.itemsize
        lanes = self.isa.vector_bytes // size
        whole = count // lanes * lanes
        if whole:
            type = ir.VectorType(self.element, lanes)
            order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(lanes - 1, -1, -1)))
            first = address(b, source, -(lanes - 1) * size)
            with counting(b, 0, whole, lanes) as i:
                vector = b.load(offset(b, first, (i, -size)), typ=type, align=self.alignment)
                b.store(b.shuffle_vector(vector, vector, order), offset(b, to, (i, size)), align=self.alignment)

        for k in range(whole, count):
            value = b.load(address(b, source, -k * size), typ=self.element, align=self.alignment)
            b.store(value, address(b, to, k * size), align=self.alignment)

    def _singly(self, to: ir.Value, source: ir.Value | None, axis: Axis) -> None:
        """A row element by element."""
        b = self.builder

        def one(at: ir.Value, k: int) -> None:
            if source is None:
                value: ir.Value = ir.Constant(self.element, 0)
            else:
                value = b.load(
                    offset(b, source, (at, axis.source), k * axis.source), typ=self.element, align=self.alignment
                )
            b.store(value, offset(b, to, (at, axis.to), k * axis.to), align=self.alignment)

        whole = axis.count // UNROLL * UNROLL
        if whole:
            with counting(b, 0, whole, UNROLL) as i:
                for k in range(UNROLL):
                    one(i, k)
        for k in range(axis.count - whole):
            one(index(whole), k)

    # ------------------------------------------------------------------------------------- squares

    def _square(self, to: ir.Value, source: ir.Value, down: Axis, along: Axis) -> None:
        """A transposition: `down` is contiguous in the operand, `along` in the result."""
        b = self.builder
        lanes = self.lanes
        while lanes > min(down.count, along.count):
            lanes //= 2
        high, wide = (axis.count // lanes * lanes for axis in (down, along))
        # Squares go together: a cache line is used up while it is near, and so is what is known of its page.
        side = max(lanes, SIDE)
        with counting(b, 0, high, side) as top, counting(b, 0, wide, side) as left:
            bottom, right = (self._until(first, side, end) for first, end in ((top, high), (left, wide)))
            with counting(b, top, bottom, lanes) as i:
                to_i, source_i = self._at(to, i, down.to), self._at(source, i, down.source)
                with counting(b, left, right, lanes) as j:
                    self._transpose(
                        self._at(to_i, j, along.to), self._at(source_i, j, along.source), down, along, lanes
                    )
        # What squares do not reach: a strip at the end of either axis.
        beside, below = along.count % lanes, down.count % lanes
        if beside:
            start = along.count - beside
            strip = Axis(beside, along.to, along.source)
            corner = address(b, to, start * along.to), address(b, source, start * along.source)
            self._strip(*corner, Axis(down.count - below, down.to, down.source), strip)
        if below:
            start = down.count - below
            corner = address(b, to, start * down.to), address(b, source, start * down.source)
            self._strip(*corner, Axis(below, down.to, down.source), along)

    def _until(self, first: ir.Value, side: int, end: int) -> ir.Value:
        """Where a tile of `side` that begins at `first` ends: at `end` at the latest."""
        b = self.builder
        if end % side == 0:
            return b.add(first, index(side))
        after = b.add(first, index(side))
        return b.select(b.icmp_signed("<", after, index(end)), after, index(end))

    def _strip(self, to: ir.Value, source: ir.Value, down: Axis, along: Axis) -> None:
        outer, inner = (down, along) if down.count <= along.count else (along, down)
        with counting(self.builder, 0, outer.count) as i:
            self._singly(self._at(to, i, outer.to), self._at(source, i, outer.source), inner)

    def _transpose(self, to: ir.Value, source: ir.Value, down: Axis, along: Axis, lanes: int) -> None:
        b = self.builder
        type = ir.VectorType(self.element, lanes)
        rows = [b.load(address(b, source, k * along.source), typ=type, align=self.alignment) for k in range(lanes)]
        for k, row in enumerate(transposed(b, rows)):
            b.store(row, address(b, to, k * down.to), align=self.alignment)

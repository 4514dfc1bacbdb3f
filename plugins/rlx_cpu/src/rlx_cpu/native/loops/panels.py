"""Panels of an element-wise kernel: one vector of columns goes through all rows of a panel before the next one.

Each value is computed by the innermost loop along whose axis it varies. A scale of a block of rows is thus converted once for
each vector of columns and block, and not for each row. Short axes are written out, so that what is computed from a position on
them, such as how far the bits of a code are shifted, is constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import accumulate
from math import prod
from operator import mul

from rlx_core.codegen.loops import Index, Kernel, operands_of
from rlx_core.system.locks import lazy
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import POINTER, address, counting, index
from rlx_cpu.native.llvm.cuts import by_value
from rlx_cpu.native.loops.memory import KernelBuffers
from rlx_cpu.native.loops.values import KernelValues
from rlx_cpu.native.loops.walk import Position, Shape

MAX_COPIES = 32
"""Copies of the code of a vector in the innermost loop at most."""

SHORT_AXIS = 4
"""Size of an axis up to which its loop is written out."""

SHORT_ROW = 8
"""The same of the innermost axis of rows."""

UNROLL = 4
"""Rows in one round of the innermost loop, if it is not written out."""


@frozen(eq=False, slots=False)
class PanelLoops:
    """Writes the loops of one part of a kernel.

    Attributes:
        shape: The last axis of its kernel is the lane axis; the other axes after the first ones, which count parts, are rows.
        parts: Number of parts.
    """

    builder: ir.IRBuilder
    shape: Shape
    parts: int

    @property
    def kernel(self) -> Kernel:
        return self.shape.kernel

    @property
    def part_axes(self) -> int:
        """Number of axes that count parts."""
        sizes = list(accumulate(self.kernel.extents, mul, initial=1))
        assert self.parts in sizes, "a part is a range of the axes"
        return sizes.index(self.parts)

    def write(self) -> None:
        """Emit the part whose number is the second argument of the function."""
        b, shape, kernel = self.builder, self.shape, self.kernel
        table, number, _ = b.function.args
        buffers = [b.load(address(b, table, 8 * i), typ=POINTER, align=8) for i in range(len(kernel.buffers))]
        values = KernelValues(b, shape, KernelBuffers(b, shape, buffers), {})
        place: dict[int, ir.LlvmValue] = {}
        part: ir.LlvmValue = number
        for axis in reversed(range(self.part_axes)):
            place[axis] = b.urem(part, index(kernel.extents[axis]))
            part = b.udiv(part, index(kernel.extents[axis]))
        full = shape.size // shape.lanes * shape.lanes
        for index_of_part in self._written_out(place, self._axes_of_cases):
            if full:
                with counting(b, 0, full, shape.lanes) as column:
                    self._rows(values, 0, Position({**index_of_part, shape.lane: column}, shape.lanes), {})
            if full < shape.size:
                self._rows(values, 0, Position({**index_of_part, shape.lane: index(full)}, shape.size - full), {})

    @property
    def _axes_of_cases(self) -> tuple[int, ...]:
        """The axes of parts for each of whose positions there is code: short ones from whose positions values are computed."""
        read = {v.axis for v in self.kernel.values if isinstance(v, Index)}
        return tuple(a for a in range(self.part_axes) if a in read and self.kernel.extents[a] <= SHORT_AXIS)

    def _written_out(self, place: dict[int, ir.LlvmValue], axes: Sequence[int]) -> Iterator[dict[int, ir.LlvmValue]]:
        """A branch for each position on some axes, in which it is a constant."""
        if not axes:
            yield place
            return
        axis, *others = axes
        for position in by_value(self.builder, place[axis], 0, self.kernel.extents[axis] - 1):
            yield from self._written_out({**place, axis: index(position)}, others)

    @property
    def row_axes(self) -> range:
        return range(self.part_axes, self.shape.lane)

    @lazy
    def levels(self) -> list[list[int]]:
        """The values that stores need, by the number of loops over rows around them: those of whose axes they vary along."""
        waiting, numbers = [store.value for store in self.kernel.stores], set[int]()
        while waiting:
            number = waiting.pop()
            if number not in numbers:
                numbers.add(number)
                waiting += operands_of(self.kernel.values[number])
        levels: list[list[int]] = [[] for _ in range(len(self.row_axes) + 1)]
        varying = [self.kernel.varies_along(axis) for axis in self.row_axes]
        for number in sorted(numbers):
            levels[max((depth for depth, varies in enumerate(varying, 1) if varies[number]), default=0)].append(number)
        return levels

    def _rows(self, values: KernelValues, depth: int, position: Position, known: dict[int, ir.LlvmValue]) -> None:
        """Emit the loops over the axes of rows from the one with the number `depth` on, after the values of that level."""
        b, known, axes = self.builder, dict(known), self.row_axes[depth:]
        for number in self.levels[depth]:
            values.value(number, position, known)
        if not axes:
            for store in self.kernel.stores:
                values.memory.store(store, position, known[store.value])
            return
        axis, size, copies = axes[0], self.kernel.extents[axes[0]], self._copies(axes)
        with nullcontext(index(0)) if copies == size else counting(b, 0, size, copies) as i:
            for step in range(copies):
                here = evolve(position, index={**position.index, axis: i}, steps={**position.steps, axis: step})
                self._rows(values, depth + 1, here, known)

    def _copies(self, axes: Sequence[int]) -> int:
        """Return how many steps of the first axis are written out in one round of its loop."""
        size = self.kernel.extents[axes[0]]
        if len(axes) == 1:
            return size if size <= SHORT_ROW else UNROLL if size % UNROLL == 0 else 1
        inside = prod(self._copies(axes[i:]) for i in range(1, len(axes)))
        return size if size <= SHORT_AXIS and size * inside <= MAX_COPIES else 1

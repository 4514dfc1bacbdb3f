"""The iteration scheme of a kernel: the lane axis, the units that are distributed over threads, and positions in a unit.

The *lane axis* is the one along which memory is contiguous. If it is an axis of the row, a unit is one row and reductions end
with a fixed tree over lanes; if it is an axis of the grid, a unit is one vector of adjacent rows, and reductions stay in lanes.
An element-wise kernel is a kernel whose row is its lane axis, cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

from rlx_core.codegen.loops import Apply, Const, Index, Kernel, Load, Reduce, Store, operands_of
from rlx_core.codegen.scalars.idioms import recognised
from rlx_core.codegen.schedule import LoopSchedule, Nest, schedule
from rlx_core.codegen.unknown import unknown
from rlx_core.ir.dims import free_symbols, substitute
from rlx_core.ir.dtypes import u16
from rlx_core.ir.strides import is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.locks import lazy
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import wants_nontemporal
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.loops.short_rows import is_long, rows_at_once
from rlx_cpu.native.loops.windows import LaneWindows, windows_of
from rlx_cpu.native.machine import LoopSizes

_CHUNK, _CHUNKS = map(unknown, ("chunk", "chunks"))

WORTH_TILES = 8
"""Elements on both axes from which on a transposed load goes through tiles."""


@frozen(slots=False)
class Shape:
    """The iteration scheme of a kernel: the lane axis, the number of lanes, and the units of work.

    Attributes:
        kernel: With an element-wise kernel's lane axis as its row.
        lane: The lane axis.
        lanes: Elements of a vector.
        block: Elements of an element-wise unit along the lane axis; `None` for kernels that reduce.
        plan: The loops.
        isa: The target instruction set.
        is_told_chunks: Whether rows are cut into chunks whose number and length are run-time arguments.
        given_strip: The strip, if it is that of dynamic-shape code.
    """

    kernel: Kernel
    lane: int
    lanes: int
    block: int | None
    plan: LoopSchedule
    isa: Isa
    is_told_chunks: bool = False
    given_strip: int | None = None

    @classmethod
    def of(cls, kernel: Kernel, isa: Isa, *, lane: int | None = None) -> Shape:
        """Return the scheme of a kernel.

        Args:
            lane: The lane axis of an element-wise kernel; by default the one with most contiguous accesses.
        """
        kernel = as_bits(evolve(kernel, values=recognised(kernel.values)))
        lanes, block = lanes_of(kernel, isa), isa.machine.loops.block
        usual = typical(kernel)
        if len(kernel.extents) > kernel.grid:
            return cls(kernel, lane_axis(usual, range(len(kernel.extents))), lanes, None, schedule(kernel), isa)
        if not kernel.extents:
            point = evolve(kernel, extents=(1,), grid=0, **_along_nothing(kernel))
            return cls(point, 0, lanes, block, _once(kernel), isa)
        rowed = with_row(kernel, lane_axis(usual, kernel.grid_axes) if lane is None else lane)
        return cls(rowed, rowed.grid, lanes, block, _once(rowed), isa)

    @property
    def sizes(self) -> LoopSizes:
        return self.isa.machine.loops

    @property
    def size(self) -> int:
        """Elements along the lane axis."""
        return self.kernel.extents[self.lane]

    @lazy
    def is_sized(self) -> bool:
        """Whether sizes come with the call."""
        return not all(map(is_known, self.kernel.extents))

    @property
    def has_known_lanes(self) -> bool:
        """Whether the number of elements along the lane axis is known."""
        return is_known(self.size)

    @property
    def is_in_row(self) -> bool:
        return self.lane >= self.kernel.grid

    @property
    def outer(self) -> tuple[int, ...]:
        """The axes of the grid over which units are counted, in addition to the blocks or vectors of the lane axis."""
        return tuple(a for a in self.kernel.grid_axes if a != self.lane)

    @property
    def pieces(self) -> int:
        """Blocks or vectors of the lane axis, or tiles."""
        if self.crossing is not None:
            return -(-self.size // (self.side * self.sizes.tile_columns))
        if self.is_in_row and self.block is None:
            return 1
        count = -(-self.size // (self.strip * self.lanes if self.block is None else self.block))
        return max(1, count) if self.has_known_lanes else count

    @lazy
    def crossing(self) -> int | None:
        """The axis along which an element-wise kernel's transposed loads are contiguous; `None` if there are none."""
        return next((a for a in self.outer if self.transposed_loads(a)), None)

    def transposed_loads(self, axis: int) -> tuple[int, ...]:
        """The loads that are contiguous along `axis` and neither contiguous nor constant along the lanes."""
        sides = self.kernel.extents[axis], self.size
        if self.block is None or not all(map(is_known, sides)) or min(sides) < WORTH_TILES:
            return ()
        return tuple(
            i
            for i, v in enumerate(self.kernel.values)
            if isinstance(v, Load)
            and not v.dynamic
            and v.strides[axis] == v.dtype.itemsize
            and v.strides[self.lane] not in (0, v.dtype.itemsize)
        )

    @lazy
    def side(self) -> int:
        """Elements of a side of a tile: a cache line of the narrowest transposed load, whole vectors."""
        assert self.crossing is not None, "tiles are of transposed loads"
        narrowest = min(self.kernel.values[i].dtype.itemsize for i in self.transposed_loads(self.crossing))
        return max(self.lanes, ALIGNMENT // narrowest)

    def prefetch_distance(self, load: Load, loop: int) -> int:
        """Return a load's prefetch distance in bytes, in one loop over a row; 0 unless it reads more memory than caches hold
        sequentially, unit after unit. If later loops read the row from a cache, the second prefetches the next row."""
        if self.is_sized:
            is_line = self.is_told_chunks and self.is_in_row and len(self.kernel.row_axes) == 1
            return self.sizes.prefetch_nbytes if is_line and load.strides[self.lane] == load.dtype.itemsize else 0
        grid = TensorType(load.dtype, self.kernel.extents)
        if not self.is_in_row or grid.static_nbytes < self.sizes.prefetched_nbytes or not is_dense(grid, load.strides):
            return 0
        row = self.kernel.row_size * load.dtype.itemsize
        if len(self.plan.nests) == 1 or row > self.sizes.resident_row_nbytes:
            return self.sizes.prefetch_nbytes
        return row if loop == 1 else 0

    @lazy
    def nontemporal(self) -> tuple[Store, ...]:
        """Stores to large results that are nontemporal: each row has the alignment of the result's start in its line, and is
        written completely in vectors without conversion (LLVM fuses narrowing and stores, for which there is no nontemporal
        form)."""
        stores: list[Store] = []
        for store in self.kernel.stores if self.is_in_row and not self.is_sized else ():
            dtype = self.kernel.buffers[store.buffer].dtype
            is_whole = not (dtype.is_narrow or dtype.is_complex or dtype.kind == "bool")
            is_vector = store.strides[self.lane] == dtype.itemsize and is_whole
            outer = (step for axis, step in enumerate(store.strides) if axis != self.lane)
            is_at_lines = not any(step % ALIGNMENT for step in (store.offset, *outer))
            nbytes = dtype.itemsize * prod(n for n, s in zip(self.kernel.extents, store.strides, strict=True) if s)
            if is_vector and is_at_lines and wants_nontemporal(self.isa, nbytes, self.lanes * dtype.itemsize):
                stores.append(store)
        return tuple(stores)

    @property
    def only_reduces(self) -> bool:
        """Whether there is one loop over the row, and nothing is stored in it."""
        nests = self.plan.nests
        return len(nests) == 1 and bool(nests[0].reduces) and not nests[0].stores

    def of_size(self, extents: tuple[int, ...]) -> Shape:
        """The same walk for known sizes."""
        kernel = evolve(self.kernel, extents=extents)
        return evolve(self, kernel=kernel, is_told_chunks=False, given_strip=self.strip)

    @property
    def strip(self) -> int:
        """Vectors of rows that a unit takes side by side: a line of memory is read whole while its page is at hand."""
        if self.given_strip is not None:
            return self.given_strip
        if self.windows is not None:
            return self.windows.vectors
        if self.is_in_row or not self.only_reduces or not self.has_known_lanes:
            return 1
        return max(1, min(self.sizes.strip // len(self.plan.nests[0].reduces), self.size // self.lanes))

    @lazy
    def windows(self) -> LaneWindows | None:
        """The places that a unit takes side by side, where their windows overlap."""
        if self.is_in_row or self.is_told_chunks or not self.only_reduces:
            return None
        reduces = len(self.plan.nests[0].reduces)
        return windows_of(self.kernel, self.lane, self.lanes, reduces, self.isa.registers)

    @lazy
    def rows_at_once(self) -> int:
        """Number of short rows of an element-wise kernel in a unit."""
        if self.block is None or not self.outer or self.crossing is not None or not self.has_known_lanes:
            return 1
        return rows_at_once(self.kernel, self.outer[-1], self.lane, self.lanes) if self.size <= self.block else 1

    @lazy
    def units(self) -> int:
        total = self.pieces
        for axis in self.outer:
            total *= self.steps(axis)
        return total

    @lazy
    def goes_by_pieces(self) -> bool:
        """Whether the next unit is the same strip of rows at the next position, and not the adjacent strip.

        That order is used if the data that is read again at every position, such as a channel's convolution weights, exceeds
        L1.
        """
        if self.is_in_row or self.is_sized or not self.only_reduces or self.units == self.pieces:
            return False
        again = sum(
            v.dtype.itemsize * prod(n for n, s in zip(self.kernel.extents, v.strides, strict=True) if s)
            for v in self.kernel.values
            if isinstance(v, Load) and v.strides[self.lane] and not any(v.strides[axis] for axis in self.outer)
        )
        return again > self.sizes.repeated_nbytes

    def steps(self, axis: int) -> int:
        """Units along an axis of the grid: its elements, groups of places or of short rows, or bands of tiles."""
        size = self.kernel.extents[axis]
        if self.windows is not None and axis == self.windows.axis:
            return -(-size // self.windows.places)
        if self.rows_at_once > 1 and axis == self.outer[-1]:
            return size // self.rows_at_once
        return -(-size // (self.side * self.sizes.tile_rows)) if axis == self.crossing else size

    @property
    def first_row_axis(self) -> int:
        """The axis of the row that the outermost loop runs over, which is the one that is cut into chunks."""
        return next((a for a in self.kernel.row_axes if a != self.lane), self.lane)

    @property
    def chunk(self) -> int:
        """Steps of the outermost loop over the row, vectors along the lane axis, that make a chunk."""
        if self.is_told_chunks:
            return _CHUNK
        axis = self.first_row_axis
        if axis == self.lane:
            return self.sizes.chunk // self.lanes
        inside = max(self.kernel.row_size // max(self.kernel.extents[axis], 1), 1)
        across = 1 if self.is_in_row else min(self.strip * self.lanes, self.size)
        return max(1, self.sizes.chunk // (inside * across))

    @lazy
    def chunks(self) -> int:
        """The number of parts of each row; 1 for all kernels except those that only reduce a few long rows."""
        if self.is_told_chunks:
            return _CHUNKS
        if (
            self.is_sized
            or not self.only_reduces
            or self.windows is not None
            or self.units >= (self.sizes.few_rows if self.is_in_row else self.sizes.few_strips)
        ):
            return 1
        axis = self.first_row_axis
        steps = self.kernel.extents[axis] // (self.lanes if axis == self.lane else 1)
        return max(1, -(-steps // self.chunk))

    @property
    def has_chunks(self) -> bool:
        """Whether rows are cut."""
        return self.chunks != 1

    @property
    def numbers(self) -> dict[str, int]:
        """Values of the unknown numbers for known sizes."""
        return {"chunk": self.chunk, "chunks": self.chunks}

    @property
    def slot_bytes(self) -> int:
        """Bytes of a partial result: a vector of the widest type, padded to cache lines."""
        return -(-8 * self.lanes // ALIGNMENT) * ALIGNMENT

    @property
    def shared_workspace(self) -> int:
        if not self.has_chunks:
            return 0
        return self.units * len(self.plan.nests[0].reduces) * self.chunks * self.strip * self.slot_bytes

    @property
    def uses_threads(self) -> bool:
        if self.is_sized:
            return True  # who binds the sizes knows better
        work = self.kernel.grid_size * self.kernel.row_size
        costs = sum(8 if is_long(v) else 1 for v in self.kernel.values)
        return self.units * self.chunks > 1 and work * max(1, costs // 4) >= self.isa.machine.serial_points

    @property
    def row_bytes(self) -> int:
        """Bytes of a kept value's row: of vectors, the last one whole."""
        itemsize = max((self.kernel.values[v].dtype.accumulator.itemsize for v in self.plan.kept), default=0)
        if self.is_in_row:
            others = prod(self.kernel.extents[a] for a in self.kernel.row_axes if a != self.lane)
            return others * -(-self.size // self.lanes) * self.lanes * itemsize
        return self.kernel.row_size * self.lanes * itemsize

    @property
    def keeps_rows(self) -> bool:
        """Whether there are kept values, for which there is a workspace."""
        return bool(self.plan.kept)

    @lazy
    def workspace(self) -> int:
        """Bytes of the kept values of a thread."""
        if not self.keeps_rows:
            return 0
        # A row without elements still has a place: its loop is printed, though it never runs.
        nbytes = self.row_bytes
        lines = -(-max(nbytes, 1) // ALIGNMENT) if isinstance(nbytes, int) else nbytes // ALIGNMENT + 1
        return len(self.plan.kept) * lines * ALIGNMENT


_TYPICAL: Final = 64
"""The assumed value of an unknown size where kernels of different sizes would have different iteration schemes."""


def typical(kernel: Kernel) -> Kernel:
    """A kernel of a usual size, for one whose sizes are unknown."""

    def known(sizes: tuple[int, ...]) -> tuple[int, ...]:
        symbols = free_symbols(*sizes)
        return tuple(substitute(n, dict.fromkeys(symbols, _TYPICAL)).__index__() for n in sizes) if symbols else sizes

    values = tuple(evolve(v, strides=known(v.strides)) if isinstance(v, Load) else v for v in kernel.values)
    stores = tuple(evolve(s, strides=known(s.strides)) for s in kernel.stores)
    return evolve(kernel, extents=known(kernel.extents), values=values, stores=stores)


def lanes_of(kernel: Kernel, isa: Isa) -> int:
    """Return the elements of a vector: the lanes of the widest type in a register, of f32 at least if anything is computed."""
    widest = max((kernel.buffers[a.buffer].accessed.itemsize for a in kernel.accesses), default=4)
    narrow = {v.dtype for v in kernel.values if v.dtype.itemsize > 2 or v.dtype.is_float}
    return isa.vector_bytes // (widest if not narrow else max(widest, 4))


def as_bits(kernel: Kernel) -> Kernel:
    """A kernel that only moves narrow floats, as one that moves integers: nothing is widened and rounded again."""
    computed = {
        d
        for v in kernel.values
        if isinstance(v, Apply | Reduce | Const)
        for d in (v.dtype, *(kernel.values[a].dtype for a in operands_of(v)))
    }
    if not any(b.dtype.is_narrow for b in kernel.buffers) or any(d.is_narrow for d in computed):
        return kernel
    values = tuple(evolve(v, dtype=u16) if v.dtype.is_narrow else v for v in kernel.values)
    buffers = tuple(evolve(b, dtype=u16) if b.dtype.is_narrow else b for b in kernel.buffers)
    return evolve(kernel, values=values, buffers=buffers)


def _along_nothing(kernel: Kernel) -> dict[str, Any]:
    """The fields of a kernel of one point with an axis of size 1 added."""
    values = tuple(evolve(v, strides=(0,)) if isinstance(v, Load) else v for v in kernel.values)
    return {"values": values, "stores": tuple(evolve(s, strides=(0,)) for s in kernel.stores)}


def _once(kernel: Kernel) -> LoopSchedule:
    """The loop of an element-wise kernel: it stores everything, what does not vary along lanes too."""
    return LoopSchedule((Nest((), (), tuple(range(len(kernel.stores)))),), ())


def lane_axis(kernel: Kernel, axes: Sequence[int]) -> int:
    """The axis along which most elements are accessed contiguously; of equals a row's, then the last."""

    def score(axis: int) -> tuple[int, int, int]:
        contiguous = 0
        for access in kernel.accesses:
            if access.strides[axis] == kernel.buffers[access.buffer].dtype.itemsize:
                touched = prod(n for n, s in zip(kernel.extents, access.strides, strict=True) if s)
                contiguous += 2 * touched if isinstance(access, Store) else touched
        return contiguous if kernel.extents[axis] > 1 else -1, int(axis >= kernel.grid), axis

    return max(axes, key=score)


def with_row(kernel: Kernel, axis: int) -> Kernel:
    """An element-wise kernel with one of its axes as the row, last."""
    order = [a for a in range(len(kernel.extents)) if a != axis] + [axis]
    new = {old: i for i, old in enumerate(order)}

    def moved(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[a] for a in order)

    values = tuple(
        evolve(v, strides=moved(v.strides))
        if isinstance(v, Load)
        else evolve(v, axis=new[v.axis])
        if isinstance(v, Index)
        else v
        for v in kernel.values
    )
    stores = tuple(evolve(s, strides=moved(s.strides)) for s in kernel.stores)
    return evolve(
        kernel,
        extents=tuple(kernel.extents[a] for a in order),
        grid=len(order) - 1,
        values=values,
        stores=stores,
    )


@frozen
class Position:
    """The position in a unit at which code is emitted.

    Attributes:
        index: The position on each axis that has one, as i64; for the lane axis that of the first lane.
        active: Number of lanes that exist; all except in a tail. An LLVM value if that is not known.
        slot: The place of this vector in rows of kept values, counted in vectors.
        chunk: Index of the row's chunk, if rows are cut.
        tile: The row and the column of this vector in the tiles of transposed loads.
        steps: Constant offsets added to the position on an axis.
    """

    index: dict[int, ir.LlvmValue]
    active: int | ir.LlvmValue
    slot: ir.LlvmValue | None = None
    chunk: ir.LlvmValue | None = None
    tile: tuple[ir.LlvmValue, ir.LlvmValue] | None = None
    steps: Mapping[int, int] = MappingProxyType({})

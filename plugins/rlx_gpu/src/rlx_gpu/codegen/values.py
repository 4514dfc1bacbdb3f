"""The values of a loop kernel at a run of neighbouring points: loads, numbers, positions and the ops on them, each made once."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field

from rlx_core.codegen.faults import fault_of
from rlx_core.codegen.loops import Apply, Bound, Const, Index, Kernel, Load, Store, operands_of
from rlx_core.codegen.places import Fault
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import f32, i32, i64
from rlx_core.ops.conversion import Cast
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.indexing import fault_place
from rlx_gpu.codegen.memory import Memory, index_text, is_whole_words
from rlx_gpu.codegen.registers import register_dtype
from rlx_gpu.codegen.walks import Schedule


@define(eq=False)
class ElementRun:
    """A run of neighbours in the text under construction.

    Attributes:
        coordinates: The index along each axis that is used, of the first element of the run.
        place: The number of the run among all, for reports.
        row_place: The number of the point of the grid.
        slot: Index of the run in the thread's arrays of kept values.
        uniform: Row-invariant values, by number.
        run: Values that are constant in a run.
        lanes: Values of each neighbour.
        words: Loaded words of the run, by the number of their load.
    """

    coordinates: dict[int, str]
    place: str
    row_place: str
    slot: str | None
    uniform: dict[int, Register]
    run: dict[int, Register] = field(factory=dict)
    lanes: dict[tuple[int, int], Register] = field(factory=dict)
    words: dict[int, list[Register]] = field(factory=dict)


@define(eq=False)
class Values:
    """Computes values of one kernel on demand."""

    b: TextAssembler
    kernel: Kernel
    schedule: Schedule
    scalars: ScalarTable
    memory: Memory = field(init=False)
    kept_arrays: dict[int, list[str]] = field(factory=dict)
    """The arrays of a value that a finished loop kept, one per lane, or one for all lanes."""
    varies_lane: tuple[bool, ...] = field(init=False)
    rows: range = field(init=False)
    """The axes that are rows, of this kernel or of the whole of which it is a stage."""
    sites: dict[int, int] = field(init=False)
    rounded_by_stores: frozenset[int] = field(init=False)
    """Casts to narrow floats that are only stored, which rounds them anyway."""

    def __attrs_post_init__(self) -> None:
        kernel = self.kernel
        self.memory = Memory(self.b, self.schedule.kind)
        self.varies_lane = kernel.varies_along(self.lane_axis) if kernel.extents else (False,) * len(kernel.values)
        self.rows = range(self.lane_axis + 1 - self.schedule.flat_axes, self.lane_axis + 1) or kernel.row_axes
        checked = [i for i, v in enumerate(kernel.values) if isinstance(v, Bound) and v.is_checked]
        self.sites = {v: site for site, v in enumerate(checked)}
        read = {a for v in kernel.values for a in operands_of(v)}
        self.rounded_by_stores = frozenset(
            i
            for i, v in enumerate(kernel.values)
            if i not in read and isinstance(v, Apply) and isinstance(v.op, Cast) and v.op.to.is_narrow
        )

    @property
    def lane_axis(self) -> int:
        return len(self.kernel.extents) - 1

    def is_wide(self, access: Load | Store) -> bool:
        """Return whether the neighbours of a run are neighbours in memory, so that they are whole words."""
        dtype, lanes = self.kernel.buffers[access.buffer].dtype, self.schedule.lanes
        return lanes > 1 and access.strides[self.lane_axis] == dtype.itemsize and is_whole_words(dtype, lanes)

    def value(self, number: int, lane: int, point: ElementRun) -> Register:
        """A value at one neighbour of a run. Without recursion, because chains are long."""
        waiting = [number]
        while waiting:
            now = waiting[-1]
            if self._known(now, lane, point) is not None:
                waiting.pop()
                continue
            missing = [a for a in self._reads(now) if self._known(a, lane, point) is None]
            if missing:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            result = self._make(now, lane, point)
            if self.varies_lane[now]:
                point.lanes[now, lane] = result
            else:
                point.run[now] = result
        return self._argument(number, lane, point)

    def _known(self, number: int, lane: int, point: ElementRun) -> Register | None:
        return point.uniform.get(number) or point.run.get(number) or point.lanes.get((number, lane))

    def _reads(self, number: int) -> tuple[int, ...]:
        return () if number in self.kept_arrays else operands_of(self.kernel.values[number])

    def _make(self, number: int, lane: int, point: ElementRun) -> Register:
        """A value of which the operands are known."""
        b, term = self.b, self.kernel.values[number]
        if number in self.kept_arrays:
            arrays = self.kept_arrays[number]
            return b.named(f"{arrays[lane if len(arrays) > 1 else 0]}[{point.slot}]", register_dtype(term.dtype))
        if isinstance(term, Const):
            return b.literal(register_dtype(term.dtype), term.number)
        if isinstance(term, Index):
            return self._index(term, lane, point)
        if isinstance(term, Load):
            return self._load(number, term, lane, point)
        args = tuple(self._argument(a, lane, point) for a in operands_of(term))
        if isinstance(term, Bound):
            return self._bound(number, term, args[0], lane, point)
        assert isinstance(term, Apply), f"%{number} is used before its loop"
        dtypes = tuple(self.kernel.values[a].dtype for a in term.args)
        if number in self.rounded_by_stores:
            return b.converted(args[0], dtypes[0].accumulator, f32)
        return self.scalars.apply(b, term.op, dtypes, args)

    def _argument(self, number: int, lane: int, point: ElementRun) -> Register:
        value = self._known(number, lane, point)
        assert value is not None, "operands come first"
        return value

    def _coordinates(self, lane: int, point: ElementRun) -> dict[int, str]:
        if not lane or self.lane_axis not in point.coordinates:
            return point.coordinates
        return {**point.coordinates, self.lane_axis: f"({point.coordinates[self.lane_axis]} + {lane}u)"}

    def _load(self, number: int, term: Load, lane: int, point: ElementRun) -> Register:
        buffer = self.kernel.buffers[term.buffer]
        if self.is_wide(term) and not any(self.varies_lane[v] for v, _ in term.dynamic):
            if number not in point.words:
                index = self._address(term, 0, point)
                point.words[number] = self.memory.words(buffer.name, term.dtype, index, self.schedule.lanes)
            return self.memory.lane(point.words[number], term.dtype, lane)
        return self.memory.load(buffer.name, term.dtype, self._address(term, lane, point))

    def _address(self, access: Load | Store, lane: int, point: ElementRun) -> str:
        size = self.kernel.buffers[access.buffer].dtype.itemsize
        text = index_text(access.strides, access.offset, size, self._coordinates(lane, point), self.schedule.kind)
        if isinstance(access, Load):
            for value, stride in access.dynamic:
                index = self.b.language.index(self._argument(value, lane, point).text, self.schedule.kind)
                text += f" {'-' if stride < 0 else '+'} {index} * {abs(stride) // size}u"
        return text

    def _index(self, term: Index, lane: int, point: ElementRun) -> Register:
        b = self.b
        # Positions fit into 31 bits, or the index's type is wider.
        kind = i32 if self.schedule.kind == "u32" else i64
        position = Register(f"({self._coordinates(lane, point)[term.axis]})", kind)
        position64 = b.resized(position, i64, is_signed=False)
        if term.scale != 1:
            position64 = b.mul(position64, b.literal(i64, term.scale))
        return b.add(position64, b.literal(i64, term.offset)) if term.offset else position64

    def _bound(self, number: int, term: Bound, index: Register, lane: int, point: ElementRun) -> Register:
        b = self.b
        zero, last = b.literal(i64, 0), b.literal(i64, term.size - 1)
        is_inside = b.icmp_unsigned("<=", index, last)
        if term.is_checked:
            place = point.place if self.schedule.lanes == 1 else f"({point.place}) * {self.schedule.lanes}u + {lane}u"
            if self.rows and not any(self.kernel.varies_along(a)[number] for a in self.rows):
                place = point.row_place
            place = fault_place(place, self.schedule.kind)
            with b.when(f"!{is_inside.text}"):
                b.line(b.language.fault(self.sites[number], place, index.text))
        nearest = b.select(b.icmp_signed("<", index, zero), zero, last)
        return b.select(is_inside, index, nearest)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the sites, in order."""
        return tuple(fault_of(self.kernel, v) for v in self.sites)

    def store(self, stores: Iterable[Store], point: ElementRun) -> None:
        """Stores of the kernel, for all neighbours of the run.

        Every value comes before any store: a result may lie in the bytes of an operand that another result still needs.
        """
        stored = [(store, [self.value(store.value, lane, point) for lane in self._lanes(store)]) for store in stores]
        for store, values in stored:
            buffer = self.kernel.buffers[store.buffer]
            if self.is_wide(store):
                self.memory.store_words(buffer.name, buffer.dtype, self._address(store, 0, point), values)
                continue
            for lane, value in enumerate(values):
                self.memory.store(buffer.name, buffer.dtype, self._address(store, lane, point), value)

    def _lanes(self, store: Store) -> range:
        """The neighbours of a run that a store has places for."""
        is_one = bool(store.strides) and not store.strides[self.lane_axis]
        return range(1 if is_one else self.schedule.lanes)

"""The loops of one kernel: those over a unit's row, and what each pass of a loop computes and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product

from attrs import evolve, field

from rlx_core.codegen.loops import Kernel, Store, operands_of
from rlx_core.codegen.schedule import Nest
from rlx_core.system.records import define
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import (
    CACHE_LINE,
    POINTER,
    Variable,
    address,
    align_of,
    counting,
    index,
    least,
    register_type,
    scaled,
)
from rlx_cpu.native.llvm.nontemporal import either_way
from rlx_cpu.native.llvm.simd import share
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.loops.bands import Bands
from rlx_cpu.native.loops.memory import KernelBuffers
from rlx_cpu.native.loops.partial import Partials
from rlx_cpu.native.loops.reductions import UNROLL
from rlx_cpu.native.loops.totals import Totals
from rlx_cpu.native.loops.units import Units
from rlx_cpu.native.loops.values import KernelValues
from rlx_cpu.native.loops.walk import Position, Shape

Accumulators = dict[int, list[Variable]]
"""Reduction → its accumulators in a loop over the row."""


@define(eq=False)
class Loops:
    """Writes the body of one kernel. Mutable, because a builder is."""

    builder: ir.IRBuilder
    shape: Shape
    memory: KernelBuffers = field(init=False)
    values: KernelValues = field(init=False)
    varies_row: tuple[bool, ...] = field(init=False)

    @property
    def kernel(self) -> Kernel:
        return self.shape.kernel

    @property
    def units(self) -> Units:
        return Units(self.builder, self.shape, Bands(self.values, self.step).write)

    @property
    def totals(self) -> Totals:
        return Totals(self.values)

    def _open(self) -> None:
        """Find the buffers."""
        b, kernel = self.builder, self.kernel
        table, tid, _ = b.function.args
        has_workspace = self.shape.keeps_rows or self.shape.has_chunks
        count = len(kernel.buffers) + has_workspace + kernel.has_check
        buffers = [b.load(address(b, table, 8 * i), typ=POINTER, align=8) for i in range(count)]
        self.memory = KernelBuffers(b, self.shape, buffers)
        self.varies_row = kernel.varies
        rows: dict[int, ir.LlvmValue] = {}
        if self.shape.keeps_rows:
            mine = address(b, buffers[len(kernel.buffers)], scaled(b, tid, self.shape.workspace))
            step = self.shape.workspace // len(self.shape.plan.kept)
            rows = {v: address(b, mine, i * step) for i, v in enumerate(self.shape.plan.kept)}
        self.values = KernelValues(b, self.shape, self.memory, rows)

    def write_units(self) -> None:
        """The body of a kernel that is one function."""
        self._open()
        memory, nontemporal = self.memory, self.shape.nontemporal

        def write(is_nontemporal: bool) -> None:
            self.memory = self.values.memory = evolve(memory, nontemporal=nontemporal if is_nontemporal else ())
            with self._share(self.shape.units) as unit:
                self.units.at(unit, self.rows_of)

        stored = {store.buffer for store in self.kernel.stores}
        operands = [memory.buffers[i] for i in range(len(self.kernel.buffers)) if i not in stored]
        either_way(self.builder, self.shape.isa, [memory.buffers[s.buffer] for s in nontemporal], write, operands)

    def write_parts(self) -> None:
        """The prologue of a kernel whose rows are cut: partial results."""
        self._open()
        with self._share(self.shape.units * self.shape.chunks) as number:
            self.part(number)

    def write_totals(self) -> None:
        """Emit the kernel after such a prologue: combine and store partial results."""
        self._open()
        with self._share(self.shape.units) as unit:
            self.total(unit)

    def _share(self, units: int) -> AbstractContextManager[ir.LlvmValue]:
        """A loop over the units that are this thread's."""
        b = self.builder
        _, tid, threads = b.function.args
        return counting(b, *share(b, units, tid, threads))

    def store(self, numbers: Sequence[int], position: Position, known: dict[int, ir.LlvmValue]) -> None:
        """Write values that are known, or can be, to their results.

        Every value comes before any store: a result may lie in the bytes of an operand that another result still needs.
        """
        self._store_all(numbers, [position], [self._computed(numbers, position, known)])

    def _computed(
        self, numbers: Sequence[int], position: Position, known: dict[int, ir.LlvmValue]
    ) -> list[ir.LlvmValue]:
        return [self.values.value(self.kernel.stores[number].value, position, known) for number in numbers]

    def _store_all(
        self, numbers: Sequence[int], positions: Sequence[Position], computed: Sequence[Sequence[ir.LlvmValue]]
    ) -> None:
        """Store what was computed at several places, one result after the other, the parts of complex elements together."""
        stores = [self.kernel.stores[number] for number in numbers]
        columns = list(zip(*computed, strict=True))
        for k, (store, values) in enumerate(zip(stores, columns, strict=True)):
            if k and self._is_second_part(stores[k - 1], store):
                continue  # stored with the first
            is_first = k + 1 < len(stores) and self._is_second_part(store, stores[k + 1])
            for which, (position, value) in enumerate(zip(positions, values, strict=True)):
                if is_first:
                    self.memory.store_pair(store, position, value, columns[k + 1][which])
                else:
                    self.memory.store(store, position, value)

    def _is_second_part(self, first: Store, second: Store) -> bool:
        """Return whether two stores are of the parts of one complex result, neighbours along the lanes."""
        width = self.kernel.buffers[first.buffer].accessed.itemsize
        return self.memory.is_paired(first) and second == evolve(first, value=second.value, offset=first.offset + width)

    def rows_of(self, positions: Sequence[Position], block: ir.LlvmValue | None) -> None:
        """Emit all loops of a unit's row, then the stores of per-row values."""
        self.values.start_unit()
        if self.shape.rows_at_once > 1:  # short rows, written out: what they share is loaded once
            (nest,) = self.shape.plan.nests
            with self._shared():
                self.step(nest, positions, {}, 0)
            return
        if len(positions) > 1 or self.shape.strip > 1:  # reductions in lanes: all of a strip go through one loop
            (nest,), finish = self.shape.plan.nests, self.shape.plan.finish
            strip = self.reduce_strip(nest, positions)
            with self._shared():
                computed = [
                    self._computed(finish, position, known) for position, known in zip(positions, strip, strict=True)
                ]
                self._store_all(finish, positions, computed)
            return
        # One row, or one vector of rows: loop after loop, with kept values in memory between them.
        (position,) = positions
        for number, nest in enumerate(self.shape.plan.nests):
            self.memory = self.values.memory = evolve(self.memory, loop=number)
            self.nest(nest, position, block)
            self.values.complete.update(nest.keeps)
        self.store(self.shape.plan.finish, position, self.values.fixed)

    def reduce_strip(self, nest: Nest, positions: Sequence[Position]) -> list[dict[int, ir.LlvmValue]]:
        """Emit the reductions of several vectors of rows in one loop; return the values known at each afterwards."""
        known: list[dict[int, ir.LlvmValue]] = []
        totals: list[Accumulators] = []
        for position in positions:
            self.values.start_unit()
            self._hoist(nest, position)
            known.append(self.values.fixed)
            totals.append({r: self.totals.start(r) for r in nest.reduces})

        windows = self.shape.windows
        written_out = () if windows is None else (windows.row_axis,)

        def step(here: dict[int, ir.LlvmValue]) -> None:
            with self._shared():
                for steps in self._steps(written_out):
                    for position, fixed, total in zip(positions, known, totals, strict=True):
                        self.values.fixed = fixed
                        self.step(nest, [evolve(position, index=here, steps={**position.steps, **steps})], total, 0)

        self._rows_outside(positions[0], [a for a in self.kernel.row_axes if a not in written_out], step)
        for fixed, total in zip(known, totals, strict=True):
            for number, variables in total.items():
                fixed[number] = self.totals.finish(number, variables)
        return known

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Context in which each location is loaded once: loads are at one position up to constant steps, before any store."""
        before = self.memory
        self.memory = self.values.memory = evolve(before, loaded={})
        yield
        self.memory = self.values.memory = before

    def _steps(self, axes: Sequence[int]) -> Iterator[dict[int, int]]:
        """All positions on axes whose sizes are known."""
        for steps in product(*(range(self.kernel.extents[a]) for a in axes)):
            yield dict(zip(axes, steps, strict=True))

    def _rows_outside(
        self, position: Position, axes: list[int], step: Callable[[dict[int, ir.LlvmValue]], None]
    ) -> None:
        if not axes:
            step(position.index)
            return
        start, end = self._bounds(position, axes[0], self.kernel.extents[axes[0]])
        with counting(self.builder, start, end) as i:
            self._rows_outside(evolve(position, index={**position.index, axes[0]: i}), axes[1:], step)

    # ---------------------------------------------------------------------------------- in chunks

    @property
    def partials(self) -> Partials:
        return Partials(self.builder, self.shape, self.memory.buffers[len(self.kernel.buffers)])

    def part(self, number: ir.LlvmValue) -> None:
        """One chunk of a unit's row: its partial results go to memory."""
        shape = self.shape
        if shape.is_in_row:
            chunk, unit = self.units.split(number, shape.chunks)
        else:
            # Side by side, neighbours in memory are other units: they come next, while their pages are at hand.
            unit, chunk = self.units.split(number, shape.units)
        (nest,) = shape.plan.nests

        def body(positions: Sequence[Position], block: ir.LlvmValue | None) -> None:
            self.values.start_unit()
            here = [evolve(position, chunk=chunk) for position in positions]
            if shape.is_in_row:
                self.nest(nest, here[0], block)
                known = [self.values.fixed]
            else:
                known = self.reduce_strip(nest, here)
            for which, reduce in enumerate(nest.reduces):
                for k, fixed in enumerate(known):
                    self.partials.put(unit, which * shape.strip + k, chunk, fixed[reduce])

        self.units.at(unit, body)

    def total(self, unit: ir.LlvmValue) -> None:
        """The chunks of a unit's row or rows combined, and what follows from them stored."""
        shape = self.shape
        (nest,) = shape.plan.nests

        def body(positions: Sequence[Position], block: ir.LlvmValue | None) -> None:
            for k, position in enumerate(positions):
                self.values.start_unit()
                for which, number in enumerate(nest.reduces):
                    reduce = self.totals.reduce(number)
                    type = register_type(reduce.dtype) if shape.is_in_row else self.totals.register(number)
                    place = which * shape.strip + k
                    self.values.fixed[number] = self.partials.total(unit, place, reduce, type)
                self.store(self.shape.plan.finish, position, self.values.fixed)

        self.units.at(unit, body)

    # ------------------------------------------------------------------------------------- a loop

    def nest(self, nest: Nest, position: Position, block: ir.LlvmValue | None) -> None:
        """One loop over the row."""
        self._hoist(nest, position)
        totals = {r: self.totals.start(r) for r in nest.reduces}
        if block is not None:
            self._blocked(nest, position, block)
        else:
            self._over(nest, position, list(self.kernel.row_axes), totals, None)
        for number, variables in totals.items():
            self.values.fixed[number] = self.totals.finish(number, variables)

    def _hoist(self, nest: Nest, position: Position) -> None:
        """Compute the loop-invariant values of the loop before it."""
        roots = [a for r in nest.reduces for a in operands_of(self.kernel.values[r])]
        roots += [self.kernel.stores[s].value for s in nest.stores]
        for value in sorted(self._below(roots)):
            if not self._varies(value):
                self.values.value(value, position, self.values.fixed)

    def _varies(self, value: int) -> bool:
        """Return whether a value changes from one pass of the loop to the next."""
        return self.varies_row[value] or (self.shape.block is not None and self.values.varies_lane[value])

    def _below(self, roots: Sequence[int]) -> set[int]:
        values: set[int] = set()
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if value in values or value in self.values.complete or value in self.values.fixed:
                continue
            values.add(value)
            waiting += operands_of(self.kernel.values[value])
        return values

    def _over(
        self,
        nest: Nest,
        position: Position,
        axes: list[int],
        totals: Accumulators,
        slot: ir.LlvmValue | None,
    ) -> None:
        """The loops over `axes` of the row, the lane axis innermost."""
        b = self.builder
        others = [a for a in axes if a != self.shape.lane]
        if others:
            axis = others[0]
            inner = [a for a in axes if a != axis]
            start, end = self._bounds(position, axis, self.kernel.extents[axis])
            with counting(b, start, end) as i:
                line = i if slot is None else b.add(scaled(b, slot, self.kernel.extents[axis]), i)
                self._over(nest, evolve(position, index={**position.index, axis: i}), inner, totals, line)
            return
        if not self.shape.is_in_row:
            self.step(nest, [evolve(position, slot=slot or index(0))], totals, 0)
            return
        vectors = -(-self.shape.size // self.shape.lanes)
        base = index(0) if slot is None else scaled(b, slot, vectors)
        if self.shape.has_known_lanes:
            self._along_lanes(nest, position, totals, base)
        else:
            self._along_unknown(nest, position, totals, base)

    def _along_lanes(self, nest: Nest, position: Position, totals: Accumulators, base: ir.LlvmValue) -> None:
        """Traverse the lane axis: several vectors at once, then single ones, then the remainder."""
        b, shape = self.builder, self.shape
        full_vectors = shape.size // shape.lanes
        line = self._line(nest)
        # Each accumulator takes every `UNROLL`th vector: one alone would wait for the latency of each addition.
        unroll = max(UNROLL, line) if totals and full_vectors >= 2 * UNROLL else line
        bundles = full_vectors // unroll * unroll
        if bundles:
            start, end = self._bounds(position, shape.lane, bundles)
            with counting(b, start, end, unroll) as vector:
                for first in range(0, unroll, line):
                    positions = [self._at(position, b.add(vector, index(first + k)), base) for k in range(line)]
                    self.step(nest, positions, totals, first)
        with self._in_last_chunk(position):
            self._remainder(nest, position, totals, base, bundles)

    def _along_unknown(self, nest: Nest, position: Position, totals: Accumulators, base: ir.LlvmValue) -> None:
        """The same where the number of elements comes with the call."""
        b, shape = self.builder, self.shape
        size, zero, lanes = sized(b, shape.size), index(0), index(shape.lanes)
        full_vectors = b.udiv(size, lanes)
        bundles: ir.LlvmValue = zero
        if totals:
            bundles = b.and_(full_vectors, index(-UNROLL))
            start, end = self._bounds(position, shape.lane, bundles)
            with counting(b, start, end, UNROLL) as vector:
                for which in range(UNROLL):
                    self.step(nest, [self._at(position, b.add(vector, index(which)), base)], totals, which)
        with self._in_last_chunk(position):
            with counting(b, bundles, full_vectors) as vector:
                self.step(nest, [self._at(position, vector, base)], totals, 0)
            left = b.urem(size, lanes)
            with b.if_then(b.icmp_signed(">", left, zero)):
                self.step(nest, [self._at(evolve(position, active=left), full_vectors, base)], totals, 0)

    def _in_last_chunk(self, position: Position) -> AbstractContextManager[object]:
        """Context for the remainder of a row, which belongs to its last chunk if the lanes are cut into chunks."""
        b, shape = self.builder, self.shape
        if position.chunk is None or shape.first_row_axis != shape.lane:
            return nullcontext()
        return b.if_then(b.icmp_signed("==", position.chunk, sized(b, shape.chunks - 1)))

    def _bounds(self, position: Position, axis: int, size: int | ir.LlvmValue) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """Return the bounds of a loop over `size` steps: the complete range, or that of its chunk."""
        b, shape = self.builder, self.shape
        limit = size if isinstance(size, ir.LlvmValue) else sized(b, size)
        if position.chunk is None or axis != shape.first_row_axis:
            return index(0), limit
        start = scaled(b, position.chunk, shape.chunk)
        end = b.add(start, sized(b, shape.chunk))
        return start, least(b, end, limit)

    def _remainder(
        self, nest: Nest, position: Position, totals: Accumulators, base: ir.LlvmValue, bundles: int
    ) -> None:
        """Emit single vectors after the bundles, and the partial vector."""
        shape = self.shape
        full_vectors = shape.size // shape.lanes
        for k in range(bundles, full_vectors):
            self.step(nest, [self._at(position, index(k), base)], totals, k - bundles)
        left = shape.size % shape.lanes
        if left:
            self.step(nest, [self._at(evolve(position, active=left), index(full_vectors), base)], totals, 0)

    def _at(self, position: Position, vector: ir.LlvmValue, base: ir.LlvmValue) -> Position:
        """Return the position of a vector of the row, `base` vectors into the kept rows."""
        here = {**position.index, self.shape.lane: scaled(self.builder, vector, self.shape.lanes)}
        return Position(here, position.active, self.builder.add(base, vector))

    def _line(self, nest: Nest) -> int:
        """Return the number of vectors computed before one is stored: a cache line if a result is stored nontemporally.

        Halves of a line that are written with other work in between may go to memory one by one: softmax of 16 MB takes a
        tenth less time on Zen 3. Element-wise kernels gain nothing, and those with functions run out of registers.
        """
        stored = {self.kernel.stores[number] for number in nest.stores}
        sizes = [self.kernel.buffers[s.buffer].dtype.itemsize for s in self.memory.nontemporal if s in stored]
        return max(1, CACHE_LINE // (self.shape.lanes * min(sizes))) if sizes else 1

    def _blocked(self, nest: Nest, position: Position, block: ir.LlvmValue) -> None:
        """A block of an element-wise kernel; the last one has the tail."""
        b, shape = self.builder, self.shape
        assert shape.block is not None, "blocks are of element-wise kernels"
        if not shape.has_known_lanes:
            self._blocked_unknown(nest, position, block)
            return
        full_elements = shape.size // shape.lanes * shape.lanes
        left = shape.size - full_elements
        if full_elements:
            start = scaled(b, block, shape.block)
            end = b.add(start, index(shape.block))
            end = least(b, end, index(full_elements))
            with counting(b, start, end, shape.lanes) as i:
                self.step(nest, [evolve(position, index={**position.index, shape.lane: i})], {}, 0)
        if left:
            tail = evolve(position, index={**position.index, shape.lane: index(full_elements)}, active=left)
            if shape.pieces == 1:
                self.step(nest, [tail], {}, 0)
            else:
                with b.if_then(b.icmp_unsigned("==", block, index(shape.pieces - 1))):
                    self.step(nest, [tail], {}, 0)

    def _blocked_unknown(self, nest: Nest, position: Position, block: ir.LlvmValue) -> None:
        """The same where the number of elements comes with the call."""
        b, shape = self.builder, self.shape
        assert shape.block is not None, "blocks are of element-wise kernels"
        start, size = scaled(b, block, shape.block), sized(b, shape.size)
        last = b.add(start, index(shape.block))
        end = least(b, last, size)
        full_end = b.and_(end, index(-shape.lanes))
        with counting(b, start, full_end, shape.lanes) as i:
            self.step(nest, [evolve(position, index={**position.index, shape.lane: i})], {}, 0)
        with b.if_then(b.icmp_signed("<", full_end, end)):
            tail = evolve(position, index={**position.index, shape.lane: full_end}, active=b.sub(end, full_end))
            self.step(nest, [tail], {}, 0)

    def step(self, nest: Nest, positions: Sequence[Position], totals: Accumulators, which: int) -> None:
        """One pass of a loop: the values at one vector of the row, or at several before the first is stored."""
        b = self.builder
        computed = []
        for k, position in enumerate(positions):
            here = dict(self.values.fixed)
            for number in nest.keeps:
                value = self.values.value(number, position, here)
                b.store(value, self.values.kept(number, position), align=align_of(value.type))
            for number, variables in totals.items():
                value = self.values.value(self.totals.reduce(number).arg, position, here)
                self.totals.add(number, variables[(which + k) % len(variables)], value, position)
            computed.append(self._computed(nest.stores, position, here))
        self._store_all(nest.stores, positions, computed)

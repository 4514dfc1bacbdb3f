"""Running reductions as native code: several lines in parallel lanes, each from one end to the other.

If the axis is not the last, adjacent lines are contiguous in memory. If it is the last, squares with one line per lane are
transposed in registers when loaded and stored. The remainder uses vectors of decreasing width. Every line is processed in the
order of its axis, so neither lanes nor threads change a bit. For f16 and bf16 the carry is f32: results are rounded, the carry
is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import evolve

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scans import ScanProblem
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, I32, Variable, address, prefetch, splat, starting
from rlx_cpu.native.llvm.elements import for_memory, held_type, load_elements, pieces, store_elements
from rlx_cpu.native.llvm.ir.numbers import constant, width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import either_way, wants_nontemporal
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share, times, transposed
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.scans.running import Running


@frozen(eq=False)
class ScanLine:
    """Code for the lines of one scan, all operands dense.

    Attributes:
        sources: The operands.
        is_nontemporal: Whether whole vectors go past the caches.
    """

    builder: ir.IRBuilder
    isa: Isa
    scan: ScanProblem
    sources: tuple[ir.LlvmValue, ...]
    result: ir.LlvmValue
    is_nontemporal: bool = False

    @property
    def dtype(self) -> DType:
        return self.scan.dtype

    @property
    def n(self) -> int:
        return self.scan.n

    @property
    def inner(self) -> int:
        return self.scan.inner

    @property
    def size(self) -> int:
        return self.dtype.itemsize

    def carries(self, lanes: int) -> tuple[Variable, ...]:
        """Return variables for the carry, initialised to the state before the first element."""
        first = self.scan.rule.start(self.dtype.accumulator, self.scan.is_exclusive)
        return tuple(Variable.of(self.builder, constant(held_type(self.dtype, lanes), number)) for number in first)

    def step(
        self, carries: Sequence[Variable], x: tuple[ir.LlvmValue, ...], is_first: ir.LlvmValue | None
    ) -> ir.LlvmValue:
        """Return the result at one position, and update the carry."""
        b, rule = self.builder, self.scan.rule
        before = tuple(carry.value(b) for carry in carries)
        first = None if is_first is None else partial(splat, b, is_first, width(x[0]))
        after = rule.step(b, NATIVE, self.dtype.accumulator, before, x, first)
        for carry, value in zip(carries, after, strict=True):
            carry.set(b, value)
        shown: ir.LlvmValue = rule.show(b, NATIVE, self.dtype.accumulator, before if self.scan.is_exclusive else after)
        return shown

    def place(self, order: ir.LlvmValue) -> ir.LlvmValue:
        """The place on the axis that comes at `order`."""
        return self.builder.sub(sized(self.builder, self.n - 1), order) if self.scan.is_reversed else order

    # ------------------------------------------------------------------ lines that are neighbours

    def across(self, start: ir.LlvmValue, lanes: Sequence[tuple[int, int]]) -> None:
        """Lines that begin at `start` bytes and after it; `lanes` are (first line, how many) of vectors."""
        b = self.builder
        carries = [self.carries(count) for _, count in lanes]
        with counting(b, 0, self.n) as order:
            here = b.add(start, b.mul(self.place(order), index(self.inner * self.size)))
            is_first = b.icmp_unsigned("==", order, index(0))
            self._prefetch(here, lanes)
            elements = [
                tuple(self._load(offset(b, s, here, first * self.size), count) for s in self.sources)
                for first, count in lanes
            ]
            for (first, _), carry, x in zip(lanes, carries, elements, strict=True):
                shown = self.step(carry, x, is_first)
                self._store(shown, offset(b, self.result, here, first * self.size))

    def _prefetch(self, here: ir.LlvmValue, lanes: Sequence[tuple[int, int]]) -> None:
        """Prefetch the lines of an element some places on."""
        ahead = self.isa.machine.scans.prefetch_places * self.inner * self.size
        away = -ahead if self.scan.is_reversed else ahead
        nbytes = sum(count for _, count in lanes) * self.size
        for source in self.sources:
            for first in range(0, nbytes, CACHE_LINE):
                prefetch(self.builder, offset(self.builder, source, here, away + first))

    def _load(self, place: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
        return load_elements(self.builder, self.isa, self.dtype, place, lanes)

    def _store(self, value: ir.LlvmValue, place: ir.LlvmValue) -> None:
        store_elements(self.builder, self.isa, self.dtype, value, place, is_nontemporal=self.is_nontemporal)

    # ------------------------------------------------------------------ lines one after the other

    def along(self, start: ir.LlvmValue, lines: int) -> None:
        """`lines` lines, the first at `start` bytes and each `n` elements long: in squares, then place by place."""
        b = self.builder
        carries = self.carries(lines)
        full_elements = self.n // lines * lines if lines > 1 else 0
        if full_elements != 0:
            with counting(b, 0, full_elements, lines) as order:
                self._square(carries, start, order, lines)
        with counting(b, full_elements, self.n) as order:
            here = b.add(start, b.mul(self.place(order), index(self.size)))
            x = tuple(self._column(offset(b, s, here), lines) for s in self.sources)
            is_first = (
                b.icmp_unsigned("==", order, index(0)) if full_elements == 0 or not is_known(full_elements) else None
            )
            shown = for_memory(b, self.isa, self.dtype, self.step(carries, x, is_first))
            for k in range(lines):
                one = b.extract_element(shown, ir.LlvmConstant(I32, k)) if lines > 1 else shown
                b.store(one, offset(b, self.result, here, k * self.n * self.size), align=self.size)

    def _column(self, place: ir.LlvmValue, lines: int) -> ir.LlvmValue:
        """One element of each line."""
        b, pitch = self.builder, self.n * self.size
        if lines == 1:
            return self._load(place, 1)
        column: ir.LlvmValue = ir.LlvmConstant(held_type(self.dtype, lines), ir.Undefined)
        for k in range(lines):
            column = b.insert_element(column, self._load(address(b, place, k * pitch), 1), ir.LlvmConstant(I32, k))
        return column

    def _square(self, carries: Sequence[Variable], start: ir.LlvmValue, order: ir.LlvmValue, lines: int) -> None:
        """Process a square block, with as many positions as lines."""
        b, pitch = self.builder, self.n * self.size
        first = b.sub(sized(b, self.n - lines), order) if self.scan.is_reversed else order
        here = b.add(start, b.mul(first, index(self.size)))
        loaded = [
            transposed(b, [self._load(offset(b, s, here, k * pitch), lines) for k in range(lines)])
            for s in self.sources
        ]
        shown: dict[int, ir.LlvmValue] = {}
        for k in range(lines):
            place = lines - 1 - k if self.scan.is_reversed else k
            is_first = b.icmp_unsigned("==", order, index(0)) if k == 0 else None
            shown[place] = self.step(carries, tuple(columns[place] for columns in loaded), is_first)
        for k, row in enumerate(transposed(b, [shown[place] for place in range(lines)])):
            self._store(row, offset(b, self.result, here, k * pitch))


def emit_running(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Lines side by side, each in the order of its axis."""
    running = Running.of(node.op, node.types[0], isa)
    write_running(module, running, len(layout.operands), name)
    return Emitted(name, uses_threads=running.uses_threads)


def write_running(module: ir.Module, running: Running, operands: int, name: str) -> None:
    """The function of a scan of so many operands."""
    builder, buffers, tid, nthreads = starting(module, name)
    scan, isa = running.scan, running.isa
    if running.nbytes == 0:
        builder.ret_void()
        return
    sources = tuple(pointer_at(builder, buffers, k) for k in range(operands))
    line = ScanLine(builder, isa, scan, sources, pointer_at(builder, buffers, operands))

    def write(is_nontemporal: bool) -> None:
        lines = evolve(line, is_nontemporal=is_nontemporal)
        (_along if scan.inner == 1 else _across)(lines, scan.outer, running.block, tid, nthreads)

    is_large = (
        is_known(running.nbytes)
        and (scan.inner if scan.inner > 1 else scan.n) * line.size % CACHE_LINE == 0
        and not scan.dtype.is_narrow
        and wants_nontemporal(isa, running.nbytes)
    )
    either_way(builder, isa, [line.result] if is_large else [], write, line.sources)
    builder.ret_void()


def _across(line: ScanLine, outer: int, block: int, tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> None:
    """Units of a few vectors of neighbouring lines; the last of a group may be narrower."""
    b, lanes = line.builder, line.isa.lanes(line.dtype.accumulator)
    blocks, left = -(-line.inner // block), line.inner % block
    low, high = share(b, outer * blocks, tid, nthreads)
    with counting(b, low, high) as unit:
        number, group = b.urem(unit, index(blocks)), b.udiv(unit, index(blocks))
        first = b.mul(number, index(block * line.size))
        start = b.add(first, b.mul(group, sized(b, line.n * line.inner * line.size)))
        full_block = partial(line.across, start, tuple(pieces(0, block, lanes)))
        last_block = partial(line.across, start, tuple(pieces(0, left, lanes)))
        _choose(
            b,
            b.icmp_unsigned("==", number, index(blocks - 1)),
            last_block if left else None,
            full_block if line.inner >= block else None,
        )


def _along(line: ScanLine, outer: int, lanes: int, tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> None:
    """Units of as many lines as lanes; the last may have fewer."""
    b = line.builder
    units, left = -(-outer // lanes), outer % lanes
    low, high = share(b, units, tid, nthreads)
    with counting(b, low, high) as unit:
        start = b.mul(unit, sized(b, lanes * line.n * line.size))
        if not is_known(outer):
            _some_along(line, b.sub(sized(b, outer), b.mul(unit, index(lanes))), lanes, start)
            return

        def rest() -> None:
            for first, count in pieces(0, left, lanes):
                line.along(b.add(start, sized(b, first * line.n * line.size)), count)

        last = b.icmp_unsigned("==", unit, index(units - 1))
        _choose(b, last, rest if left else None, partial(line.along, start, lanes) if outer >= lanes else None)


def _some_along(line: ScanLine, left: ir.LlvmValue, lanes: int, start: ir.LlvmValue) -> None:
    """Emit `lanes` lines, or the remaining ones in the blocks of `pieces`."""
    b, by_line = line.builder, line.n * line.size
    with b.if_else(b.icmp_signed(">=", left, index(lanes))) as (full, otherwise):
        with full:
            line.along(start, lanes)
        with otherwise:
            count = lanes // 2
            while count:
                before = b.and_(left, index(-2 * count))
                with b.if_then(b.icmp_unsigned("!=", b.and_(left, index(count)), index(0))):
                    line.along(b.add(start, times(b, before, by_line)), count)
                count //= 2


def _choose(b: ir.IRBuilder, is_last: ir.LlvmValue, last: Any, other: Any) -> None:
    """Code for the last unit and for the others, where both are there."""
    if last is None or other is None:
        (last or other)()
        return
    with b.if_else(is_last) as (then, otherwise):
        with then:
            last()
        with otherwise:
            other()

"""Running reductions as native code: lines side by side in lanes, each from its one end to the other.

Where the axis is not the last, neighbouring lines are neighbours in memory. Where it is the last, squares of as many lines as
lanes are transposed in registers on the way in and out. What is left over goes through ever narrower vectors. Every line runs
in the order of its axis, so neither lanes nor threads change a bit. What f16 and bf16 carry is f32: a result is rounded, what
follows it is not made from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from attrs import evolve, frozen

from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.cumulative import CumLogSumExp, Cumsum, Cumulative
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native import ir, scalar
from rlx_cpu.native.build import CACHE_LINE, I32, address, align_of, constant, prefetch, variable, width
from rlx_cpu.native.contract import Emitted, Layout
from rlx_cpu.native.elements import for_memory, held_type, load_elements, pieces, store_elements
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.movement import WORTH_THREADS, starting
from rlx_cpu.native.running import RULES, Carry, Rule
from rlx_cpu.native.simd import counting, index, offset, pointer_at, share, transposed
from rlx_cpu.native.streaming import either_way, store_streamed, streams
from rlx_cpu.native.table import native

__all__ = ["emit_running"]

ABREAST = (1024, 512, 256)
"""Bytes of a unit's lines at one place: so many as leave enough units to share out. Every place is another page, on both
sides; of a kilobyte from each the processor sees what comes next."""

ENOUGH = 8
"""Units to share out."""

AHEAD = 8
"""Places on the axis that are asked for before their turn."""

SQUARE = 16
"""Most lanes of a square that is transposed: more would not stay in registers."""


@condition("numbers that registers hold; of complex ones only sums")
def is_running(node: Node) -> bool:
    dtype = node.types[0].dtype
    return (dtype.component if isinstance(node.op, Cumsum) else dtype) in scalar.DTYPES


@frozen(eq=False)
class Line:
    """Code for the lines of one op: [outer, n, inner] elements, all operands dense.

    Attributes:
        sources: The operands.
        is_reversed, is_exclusive: As the op says.
        is_streamed: Whether whole vectors go past the caches.
    """

    builder: ir.IRBuilder
    isa: Isa
    rule: Rule
    dtype: DType
    n: int
    inner: int
    is_reversed: bool
    is_exclusive: bool
    sources: tuple[ir.Value, ...]
    result: ir.Value
    is_streamed: bool = False

    @property
    def size(self) -> int:
        return self.dtype.itemsize

    def carries(self, lanes: int) -> tuple[ir.Value, ...]:
        """Variables for what is carried, as before the first element."""
        b, type = self.builder, held_type(self.dtype, lanes)
        found = []
        for number in self.rule.start(self.dtype.accumulator, self.is_exclusive):
            found.append(variable(b, type))
            b.store(constant(type, number), found[-1], align=align_of(type))
        return tuple(found)

    def step(self, carries: Sequence[ir.Value], x: Carry, is_first: ir.Value | None) -> ir.Value:
        """The result at one place, with what is carried changed."""
        b, type = self.builder, x[0].type
        before = tuple(b.load(c, typ=type, align=align_of(type)) for c in carries)
        after = self.rule.step(b, self.dtype.accumulator, before, x, is_first)
        for variable_, value in zip(carries, after, strict=True):
            b.store(value, variable_, align=align_of(type))
        return self.rule.show(b, self.dtype.accumulator, before if self.is_exclusive else after)

    def place(self, order: ir.Value) -> ir.Value:
        """The place on the axis that comes at `order`."""
        return self.builder.sub(index(self.n - 1), order) if self.is_reversed else order

    # ------------------------------------------------------------------ lines that are neighbours

    def beside(self, at: ir.Value, lanes: Sequence[tuple[int, int]]) -> None:
        """Lines that begin at `at` bytes and after it; `lanes` are (first line, how many) of vectors."""
        b = self.builder
        carries = [self.carries(count) for _, count in lanes]
        with counting(b, 0, self.n) as order:
            here = b.add(at, b.mul(self.place(order), index(self.inner * self.size)))
            is_first = b.icmp_unsigned("==", order, index(0))
            self._ask(here, lanes)
            elements = [
                tuple(self._load(offset(b, s, here, first * self.size), count) for s in self.sources)
                for first, count in lanes
            ]
            for (first, _), carry, x in zip(lanes, carries, elements, strict=True):
                shown = self.step(carry, x, is_first)
                self._store(shown, offset(b, self.result, here, first * self.size))

    def _ask(self, here: ir.Value, lanes: Sequence[tuple[int, int]]) -> None:
        """Have the lines of an element some places on brought near."""
        away = (-AHEAD if self.is_reversed else AHEAD) * self.inner * self.size
        nbytes = sum(count for _, count in lanes) * self.size
        for source in self.sources:
            for first in range(0, nbytes, CACHE_LINE):
                prefetch(self.builder, offset(self.builder, source, here, away + first))

    def _load(self, place: ir.Value, lanes: int) -> ir.Value:
        return load_elements(self.builder, self.isa, self.dtype, place, lanes)

    def _store(self, value: ir.Value, place: ir.Value) -> None:
        if self.is_streamed and width(value) * self.size == self.isa.vector_bytes:
            store_streamed(self.builder, value, place)
        else:
            store_elements(self.builder, self.isa, self.dtype, value, place)

    # ------------------------------------------------------------------ lines one after the other

    def below(self, at: ir.Value, lines: int) -> None:
        """`lines` lines, the first at `at` bytes and each `n` elements long: in squares, then place by place."""
        b = self.builder
        carries = self.carries(lines)
        whole = self.n // lines * lines if lines > 1 else 0
        if whole:
            with counting(b, 0, whole, lines) as order:
                self._square(carries, at, order, lines)
        with counting(b, whole, self.n) as order:
            here = b.add(at, b.mul(self.place(order), index(self.size)))
            x = tuple(self._column(offset(b, s, here), lines) for s in self.sources)
            is_first = b.icmp_unsigned("==", order, index(0)) if not whole else None
            shown = for_memory(b, self.isa, self.dtype, self.step(carries, x, is_first))
            for k in range(lines):
                one = b.extract_element(shown, ir.Constant(I32, k)) if lines > 1 else shown
                b.store(one, offset(b, self.result, here, k * self.n * self.size), align=self.size)

    def _column(self, place: ir.Value, lines: int) -> ir.Value:
        """One element of each line."""
        b, pitch = self.builder, self.n * self.size
        if lines == 1:
            return self._load(place, 1)
        whole: ir.Value = ir.Constant(held_type(self.dtype, lines), ir.Undefined)
        for k in range(lines):
            whole = b.insert_element(whole, self._load(address(b, place, k * pitch), 1), ir.Constant(I32, k))
        return whole

    def _square(self, carries: Sequence[ir.Value], at: ir.Value, order: ir.Value, lines: int) -> None:
        """As many places as lines."""
        b, pitch = self.builder, self.n * self.size
        first = b.sub(index(self.n - lines), order) if self.is_reversed else order
        here = b.add(at, b.mul(first, index(self.size)))
        loaded = [
            transposed(b, [self._load(offset(b, s, here, k * pitch), lines) for k in range(lines)])
            for s in self.sources
        ]
        shown: dict[int, ir.Value] = {}
        for k in range(lines):
            place = lines - 1 - k if self.is_reversed else k
            is_first = b.icmp_unsigned("==", order, index(0)) if k == 0 else None
            shown[place] = self.step(carries, tuple(columns[place] for columns in loaded), is_first)
        for k, row in enumerate(transposed(b, [shown[place] for place in range(lines)])):
            self._store(row, offset(b, self.result, here, k * pitch))


def emit_running(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Lines side by side, each in the order of its axis."""
    op: Any = node.op
    result = node.types[0]
    shape, axis, dtype = result.static_shape, normalize_axis(op.axis, result.rank), result.dtype.component
    outer, n = prod(shape[:axis]), shape[axis]
    inner = prod(shape[axis + 1 :]) * (result.dtype.itemsize // dtype.itemsize)
    builder, buffers, tid, nthreads = starting(module, name)
    if 0 in shape:
        builder.ret_void()
        return Emitted(name, uses_threads=False)
    count = len(layout.operands)
    line = Line(
        builder,
        isa,
        RULES[type(op)],
        dtype,
        n,
        inner,
        op.reverse,
        isinstance(op, Cumulative) and op.exclusive,
        tuple(pointer_at(builder, buffers, k) for k in range(count)),
        pointer_at(builder, buffers, count),
    )
    units = 0

    def write(is_streamed: bool) -> None:
        nonlocal units
        units = _lines(evolve(line, is_streamed=is_streamed), op, outer, tid, nthreads)

    is_at_lines = (inner if inner > 1 else n) * line.size % CACHE_LINE == 0 and not dtype.is_narrow
    large = is_at_lines and streams(isa, result.static_nbytes)
    either_way(builder, isa, [line.result] if large else [], write, line.sources)
    builder.ret_void()
    work = result.static_nbytes * (8 if isinstance(op, CumLogSumExp) else 1)
    return Emitted(name, uses_threads=units > 1 and work >= WORTH_THREADS)


def _lines(line: Line, op: Any, outer: int, tid: ir.Value, nthreads: ir.Value) -> int:
    """One thread's part; returns how many units there are."""
    lanes = line.isa.lanes(line.dtype.accumulator)
    if line.inner == 1:
        return _below(line, outer, min(lanes, SQUARE), tid, nthreads)
    # Of functions there is much code, and memory is not what their lines wait for.
    return _beside(line, outer, lanes, ABREAST[-1:] if isinstance(op, CumLogSumExp) else ABREAST, tid, nthreads)


def _beside(line: Line, outer: int, lanes: int, abreast: Sequence[int], tid: ir.Value, nthreads: ir.Value) -> int:
    """Units of a few vectors of neighbouring lines; the last of a group may be narrower."""
    b = line.builder
    sizes = [lanes * max(1, nbytes // (lanes * line.size)) for nbytes in abreast]
    block = next((n for n in sizes if outer * -(-line.inner // n) >= ENOUGH), sizes[-1])
    blocks, left = -(-line.inner // block), line.inner % block
    low, high = share(b, outer * blocks, tid, nthreads)
    with counting(b, low, high) as unit:
        number, group = b.urem(unit, index(blocks)), b.udiv(unit, index(blocks))
        first = b.mul(number, index(block * line.size))
        at = b.add(first, b.mul(group, index(line.n * line.inner * line.size)))
        whole = partial(line.beside, at, tuple(pieces(0, block, lanes)))
        rest = partial(line.beside, at, tuple(pieces(0, left, lanes)))
        _choose(
            b,
            b.icmp_unsigned("==", number, index(blocks - 1)),
            rest if left else None,
            whole if line.inner >= block else None,
        )
    return outer * blocks


def _below(line: Line, outer: int, lanes: int, tid: ir.Value, nthreads: ir.Value) -> int:
    """Units of as many lines as lanes; the last may have fewer."""
    b = line.builder
    units, left = -(-outer // lanes), outer % lanes
    low, high = share(b, units, tid, nthreads)
    with counting(b, low, high) as unit:
        at = b.mul(unit, index(lanes * line.n * line.size))

        def rest() -> None:
            for first, count in pieces(0, left, lanes):
                line.below(b.add(at, index(first * line.n * line.size)), count)

        last = b.icmp_unsigned("==", unit, index(units - 1))
        _choose(b, last, rest if left else None, partial(line.below, at, lanes) if outer >= lanes else None)
    return units


def _choose(b: ir.IRBuilder, is_last: ir.Value, last: Any, other: Any) -> None:
    """Code for the last unit and for the others, where both are there."""
    if last is None or other is None:
        (last or other)()
        return
    with b.if_else(is_last) as (then, otherwise):
        with then:
            last()
        with otherwise:
            other()


native.register(*RULES, when=is_running, in_place=(0, 1), accepts_strides=False, name="running")(emit_running)

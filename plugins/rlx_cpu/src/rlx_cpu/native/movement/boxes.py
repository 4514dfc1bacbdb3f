"""Movement as native code: any op that is boxes, for elements of any dtype.

The boxes' outer axes are units of a few kilobytes, counted through all boxes; each thread does a contiguous share of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod

from rlx_core.codegen.movement.boxes import Box, split
from rlx_core.codegen.movement.tilings import TILINGS, boxes_of
from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.system.records import evolve
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import address, least, starting
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import either_way, wants_nontemporal
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.movement.common import common_move
from rlx_cpu.native.movement.mover import Mover, canonical, in_loop_order, is_transposed
from rlx_cpu.native.movement.mover_rows import Stores, stores_of
from rlx_cpu.native.movement.sized import sized_move
from rlx_cpu.native.table import native

MANY_UNITS = 4
"""Units of a box that are shared out by themselves."""

Placed = tuple[Box, int, ir.LlvmValue, "ir.LlvmValue | None"]
"""A box, the size of its elements, and the addresses that its offsets are counted from."""


def emit_move(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Strided copies and fills that together are the result."""
    builder, buffers, tid, nthreads = starting(module, name)
    sized_boxes = [(box, layout.results[box.result].type.dtype.itemsize) for box in boxes_of(node.op, layout)]
    nbytes = sum(box.size * itemsize for box, itemsize in sized_boxes)
    pieces = [piece for box, itemsize in sized_boxes for piece in prepared(isa, box, itemsize)]
    common = None if wants_nontemporal(isa, nbytes) else common_move(isa, pieces, len(layout.operands))
    if common is not None:
        common.call(builder, name, buffers, tid, nthreads)
        builder.ret_void()
        return Emitted(name, uses_threads=common.rows > 1 and nbytes >= isa.machine.serial_nbytes)
    placed: list[Placed] = []
    for box, itemsize in sized_boxes:
        to = pointer_at(builder, buffers, len(layout.operands) + box.result)
        source = None if box.operand is None else pointer_at(builder, buffers, box.operand)
        placed.append((box, itemsize, to, source))
    units = emit_boxes(builder, isa, placed, tid, nthreads)
    builder.ret_void()
    return Emitted(name, uses_threads=units > 1 and nbytes >= isa.machine.serial_nbytes)


def emit_boxes(b: ir.IRBuilder, isa: Isa, boxes: Sequence[Placed], tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> int:
    """One thread's share of all boxes; returns how many units there are."""
    parts = [
        (piece, width, to, source)
        for box, itemsize, to, source in boxes
        for piece, width in prepared(isa, box, itemsize)
    ]
    units = [prod(a.count for a in box.axes[: unit_axes(isa, box, width)]) for box, width, _, _ in parts]
    # Units are of different sizes from box to box, so every thread has its share of a box that has many.
    few = [count if count < MANY_UNITS else 0 for count in units]
    before = list(accumulate(few, initial=0))

    def write(is_nontemporal: bool) -> None:
        low, high = share(b, before[-1], tid, nthreads)
        for part, first, count in zip(parts, before, units, strict=False):
            if count < MANY_UNITS:
                mine = _within(b, low, first, count), _within(b, high, first, count)
            else:
                mine = share(b, count, tid, nthreads)
            _emit_box(b, isa, part, *mine, is_nontemporal)

    nbytes = sum(box.size * itemsize for box, itemsize, _, _ in boxes)
    either_way(b, isa, [to for _, _, to, _ in boxes] if wants_nontemporal(isa, nbytes) else [], write)
    return sum(units)


def prepared(isa: Isa, box: Box, itemsize: int) -> list[tuple[Box, int]]:
    """The box in axes of loops, the outer ones many enough to be shared out, with the size of its elements."""
    box, itemsize = canonical(box, itemsize)
    last = box.axes[-1]
    block = isa.machine.movement.unit_nbytes // itemsize
    pieces = split(box, block) if last.count > 2 * block and last.to == itemsize else (box,)
    ordered = [evolve(p, axes=in_loop_order(p.axes, itemsize)) for p in pieces]
    return [(band, itemsize) for p in ordered for band in in_bands(isa, p, itemsize)]


def in_bands(isa: Isa, box: Box, itemsize: int) -> Iterable[Box]:
    """A transposition of two axes alone as one of many bands of its result, so that threads can share it out."""
    sizes = isa.machine.movement
    is_large = is_transposed(box.axes, itemsize) and box.size * itemsize > sizes.unit_nbytes
    if not is_large or box.axes[-2].count <= sizes.tile:
        return (box,)
    *outer, last = box.axes
    return [evolve(band, axes=(*band.axes, last)) for band in split(evolve(box, axes=tuple(outer)), sizes.tile)]


def unit_axes(isa: Isa, box: Box, itemsize: int) -> int:
    """Return how many of the outer axes are counted through by units; the others are loops inside of one."""
    inner_axes = 2 if is_transposed(box.axes, itemsize) else 1
    inner = box.size * itemsize
    for number, axis in enumerate(box.axes[:-inner_axes]):
        if inner <= isa.machine.movement.unit_nbytes:
            return number
        inner //= axis.count
    return len(box.axes) - inner_axes


def _emit_box(
    b: ir.IRBuilder, isa: Isa, part: Placed, low: ir.LlvmValue, high: ir.LlvmValue, is_nontemporal: bool
) -> None:
    """Units `low` to `high` of one box."""
    box, itemsize, to, source = part
    nbytes = box.axes[-1].count * itemsize
    stores = stores_of(isa, box.to, box.axes[:-1], nbytes) if is_nontemporal else Stores.ORDINARY
    outer = unit_axes(isa, box, itemsize)
    to = address(b, to, box.to)
    source = None if source is None else address(b, source, box.start)
    with counting(b, low, high) as unit:
        remaining, to_unit, source_unit = unit, to, source
        for axis in reversed(box.axes[:outer]):
            i, remaining = _split(b, remaining, axis.count, is_last=axis is box.axes[0])
            to_unit = offset(b, to_unit, (i, axis.to))
            source_unit = None if source_unit is None else offset(b, source_unit, (i, axis.source))
        Mover(b, isa, itemsize, stores).move(to_unit, source_unit, box.axes[outer:])


def _split(b: ir.IRBuilder, number: ir.LlvmValue, size: int, *, is_last: bool) -> tuple[ir.LlvmValue, ir.LlvmValue]:
    if is_last:
        return number, number
    return b.urem(number, index(size)), b.udiv(number, index(size))


def _within(b: ir.IRBuilder, unit: ir.LlvmValue, first: int, count: int) -> ir.LlvmValue:
    """`unit` of all units as one of the `count` that begin at `first`, or the nearest."""
    value = b.sub(unit, index(first))
    value = b.select(b.icmp_signed("<", value, index(0)), index(0), value)
    return least(b, value, index(count))


native.register(*TILINGS, priority=1, completes_parts=True, name="move", sized=sized_move)(emit_move)

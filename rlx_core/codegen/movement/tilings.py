"""Movement ops as boxes: a table from op class to a function of the op and its layout.

Only the positions of elements are decided here; each target decides how to move them. Strides of operands are arbitrary, so a
transposed or reversed operand costs no additional copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx_core.codegen.movement.boxes import Axis, AxisRun, Box, repeated, tiled
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.op import Op
from rlx_core.ir.types import normalize_axes, normalize_axis
from rlx_core.ops.convolution.sliding import SlidingWindows
from rlx_core.ops.creation import Full
from rlx_core.ops.movement import Concat, Flip, Narrow, Pad
from rlx_core.ops.rearrange import Diagonal, Repeat, Roll, Tile
from rlx_core.ops.selection import OptimizationBarrier
from rlx_core.ops.structural import Expand, Reshape, Transpose

Tiling = Callable[[Any, Layout], list[Box]]
_T = TypeVar("_T", bound=Tiling)

TILINGS: dict[type[Op], Tiling] = {}


def tiling(*ops: type[Op]) -> Callable[[_T], _T]:
    """Register the decorated function as the tiling of `ops`."""

    def add(function: _T) -> _T:
        TILINGS.update(dict.fromkeys(ops, function))
        return function

    return add


def boxes_of(op: Op, layout: Layout) -> list[Box]:
    """Return the boxes of the results of `op`, without empty boxes and boxes whose elements are in place already."""
    return [box for box in TILINGS[type(op)](op, layout) if box.size and not _is_there(box, layout)]


def _is_there(box: Box, layout: Layout) -> bool:
    place = None if box.operand is None else layout.operands[box.operand]
    return place is not None and place.is_inside


def moved(place: Place, source: Sequence[int], shape: Sequence[int] | None = None, **more: Any) -> Box:
    """A box of a result's place, or of `shape` from its start, read by these byte strides."""
    counts = _shape(place) if shape is None else shape
    return Box(tuple(Axis(n, t, s) for n, t, s in zip(counts, place.strides, source, strict=True)), **more)


def _first(layout: Layout) -> tuple[Place, Place]:
    operand = layout.operands[0]
    assert operand is not None, "what is moved is there"
    return operand, layout.results[0]


def _shape(place: Place) -> tuple[int, ...]:
    return place.type.static_shape


@tiling(Narrow, Expand, Transpose, SlidingWindows)
def viewed(op: Any, layout: Layout) -> list[Box]:
    """The box that copies a view; elements that it repeats are read again."""
    x, y = _first(layout)
    offset, source = op.view(x.type, x.strides, 0)
    return [moved(y, source, start=offset)]


@tiling(Diagonal)
def diagonal(op: Diagonal, layout: Layout) -> list[Box]:
    x, y = _first(layout)
    *outer, row, column = x.strides
    offset = (op.offset * column if op.offset >= 0 else -op.offset * row) if _shape(y)[-1] else 0
    return [moved(y, (*outer, row + column), start=offset)]


@tiling(Full)
def full(op: Full, layout: Layout) -> list[Box]:
    _, y = _first(layout)
    return [moved(y, (0,) * y.type.rank)]


@tiling(Reshape)
def reshaped(op: Reshape, layout: Layout) -> list[Box]:
    """The operand's elements in its own order, which is the result's."""
    x, y = _first(layout)
    assert y.is_dense, "the result of a reshape that copies is a buffer of its own"
    return [moved(Place.dense(x.type), x.strides)]


@tiling(OptimizationBarrier)
def passed_on(op: OptimizationBarrier, layout: Layout) -> list[Box]:
    pairs = zip(layout.operands, layout.results, strict=True)
    return [moved(y, x.strides, operand=i, result=i) for i, (x, y) in enumerate(pairs) if x is not None]


@tiling(Concat)
def joined(op: Concat, layout: Layout) -> list[Box]:
    """An operand a box, one after the other."""
    y = layout.results[0]
    axis = normalize_axis(op.axis, y.type.rank)
    boxes, start = [], 0
    for i, x in enumerate(layout.operands):
        assert x is not None, "what is joined is there"
        boxes.append(moved(y, x.strides, _shape(x), operand=i, to=start * y.strides[axis]))
        start += _shape(x)[axis]
    return boxes


@tiling(Flip)
def reversed_(op: Flip, layout: Layout) -> list[Box]:
    x, y = _first(layout)
    axes = normalize_axes(op.axes, x.type.rank)
    shape = _shape(x)
    if 0 in shape:
        return []
    start = sum((shape[a] - 1) * x.strides[a] for a in axes)
    source = tuple(-s if a in axes else s for a, s in enumerate(x.strides))
    return [moved(y, source, start=start)]


@tiling(Roll)
def rolled(op: Roll, layout: Layout) -> list[Box]:
    """Two pieces along each axis, changed places."""
    x, y = _first(layout)
    runs: list[list[AxisRun]] = [[AxisRun.copy(n)] for n in _shape(x)]
    for raw_axis, shift in zip(op.axes, op.shift, strict=True):
        axis = normalize_axis(raw_axis, x.type.rank)
        n = _shape(x)[axis]
        shift = shift % n if n else 0
        runs[axis] = [AxisRun.copy(shift, 0, n - shift), AxisRun.copy(n - shift, shift, 0)]
    return tiled(runs, y.strides, x.strides)


@tiling(Tile)
def tile(op: Tile, layout: Layout) -> list[Box]:
    x, y = _first(layout)
    rank = y.type.rank
    shape = (*(1,) * (rank - x.type.rank), *_shape(x))
    source = (*(0,) * (rank - x.type.rank), *x.strides)
    repeats = (*(1,) * (rank - len(op.repeats)), *op.repeats)
    runs = [[repeated(AxisRun.copy(n), n, times)] for n, times in zip(shape, repeats, strict=True)]
    return tiled(runs, y.strides, source)


@tiling(Repeat)
def repeat(op: Repeat, layout: Layout) -> list[Box]:
    x, y = _first(layout)
    runs = [[AxisRun.copy(n)] for n in _shape(x)]
    axis = normalize_axis(op.axis, x.type.rank)
    runs[axis] = [AxisRun(((_shape(x)[axis], op.repeats, 1), (op.repeats, 1, 0)))]
    return tiled(runs, y.strides, x.strides)


@tiling(Pad)
def padded(op: Pad, layout: Layout) -> list[Box]:
    """The operand in the middle; around it a fill, or more of the operand."""
    x, y = _first(layout)
    lo = tuple(width.__index__() for width in op.lo)
    fill = 1 if len(layout.operands) > 1 and layout.operands[1] is not None else None
    gaps = op.gaps(x.type.rank)
    if op.mode == "constant":
        runs = [_spaced(n, *w) for n, *w in zip(_shape(x), _shape(y), lo, gaps, strict=True)]
    else:
        runs = [
            _continued(op.mode, n, before, total) for n, before, total in zip(_shape(x), lo, _shape(y), strict=True)
        ]
    return tiled(runs, y.strides, x.strides, fill)


def _spaced(n: int, total: int, lo: int, gap: int) -> list[AxisRun]:
    """`n` elements from place `lo`, `gap` cells between; what falls outside of `total` places is not there."""
    step = gap + 1
    first = max(0, -(lo // step))
    end = min(n, -((lo - total) // step)) if total > lo else 0
    if first >= end:
        return [AxisRun.fill(total)]
    offset, count = lo + first * step, end - first
    after = offset + (count - 1) * step + 1
    between = AxisRun(((count - 1, step, 0), (gap, 1, 0)), offset + 1, is_fill=True)
    return [
        AxisRun.fill(offset),
        AxisRun(((count, step, 1),), offset, first),
        between,
        AxisRun.fill(total - after, after),
    ]


def _continued(mode: str, n: int, lo: int, total: int) -> list[AxisRun]:
    """Return runs for `total` positions, of which position `lo` is element 0 and the others follow from the mode."""
    if total == 0:
        return [AxisRun.copy(0)]
    if mode == "edge" or n == 1:
        return _edges(n, lo, total)
    # One piece is a pass over the axis: forward repeatedly, or forward and backward, with the ends once or twice.
    length = n - 1 if mode == "reflect" else n
    is_mirrored = mode != "wrap"
    first, last = -lo // length, (total - lo - 1) // length
    ends = sorted({first, first + 1, first + 2, last - 1, last})
    runs = [_piece(p, length, n - 1, lo, total, is_mirrored) for p in ends if first <= p <= last]
    # What lies between the first three and the last two is whole and repeats with a period of one piece, or of two.
    period = 2 if is_mirrored else 1
    for offset in range(period):
        start = first + 3 + offset
        times = len(range(start, last - 1, period))
        if times:
            runs.append(repeated(_piece(start, length, n - 1, lo, total, is_mirrored), period * length, times))
    return runs


def _edges(n: int, lo: int, total: int) -> list[AxisRun]:
    """The ends repeated: `lo` places (less than none crops) before element 0, the rest after the last."""
    before = min(max(lo, 0), total)
    first = max(-lo, 0)
    count = max(min(n - first, total - before), 0)
    after = total - before - count
    runs = [
        AxisRun.copy(before, 0, 0, step=0),
        AxisRun.copy(count, before, first),
        AxisRun.copy(after, before + count, n - 1, step=0),
    ]
    return [run for run in runs if run.size]


def _piece(number: int, length: int, last: int, lo: int, total: int, is_mirrored: bool) -> AxisRun:
    """Return piece `number`, clipped to the result; a backward pass starts at the `last` element."""
    begin, end = max(number * length, -lo), min((number + 1) * length, total - lo)
    into = begin - number * length
    if is_mirrored and number % 2:
        return AxisRun.copy(end - begin, begin + lo, last - into, step=-1)
    return AxisRun.copy(end - begin, begin + lo, into)

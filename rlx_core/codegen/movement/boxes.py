"""Movement as data: a result is tiled by boxes, and each box is a strided copy of an operand or a fill.

A box is a list of axes, each with a count and a step on both sides, so that padding, joining, reversing, rolling and tiling
differ in nothing but numbers. Boxes of one result do not overlap, so any of them may be written by any thread at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from rlx_core.system.records import evolve, frozen


@frozen
class Axis:
    """`count` steps of a box: `to` bytes in the result, `source` bytes in the operand."""

    count: int
    to: int
    source: int = 0


@frozen
class Box:
    """The part of a result at `to + Σ i·axis.to`, read at `start + Σ i·axis.source`.

    Attributes:
        axes: The outermost first.
        to, start: Bytes from the beginning of the result, and of the operand.
        operand: The operand that is read; `None` for zeros.
        result: Number of the result that is written.
    """

    axes: tuple[Axis, ...]
    to: int = 0
    start: int = 0
    operand: int | None = 0
    result: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(axis.count for axis in self.axes)


@frozen
class AxisRun:
    """A stretch of one axis of a result, in elements of both sides.

    Attributes:
        axes: (count, step in the result, step in the operand); several where the stretch repeats or has gaps.
        to, start: Start in the result, and in the operand.
        is_fill: Whether it shows no element of the operand.
    """

    axes: tuple[tuple[int, int, int], ...]
    to: int = 0
    start: int = 0
    is_fill: bool = False

    @property
    def size(self) -> int:
        return prod(count for count, _, _ in self.axes)

    @classmethod
    def copy(cls, count: int, to: int = 0, start: int = 0, step: int = 1) -> AxisRun:
        """Return a run of `count` neighbours in the result, with stride `step` in the operand."""
        return cls(((count, 1, step),), to, start)

    @classmethod
    def fill(cls, count: int, to: int = 0) -> AxisRun:
        """Return a run of `count` neighbours in the result that are filled."""
        return cls(((count, 1, 0),), to, 0, is_fill=True)


def tiled(
    runs: Sequence[Sequence[AxisRun]], to: Sequence[int], source: Sequence[int], fill: int | None = None
) -> list[Box]:
    """Return boxes for every combination of one run per axis; a fill along one axis is a fill along all that follow.

    Args:
        runs: For each axis, runs that together are the whole axis of the result.
        to, source: Byte strides of the result and of operand 0.
        fill: The operand, a scalar, with which fills are filled; `None` for zeros.
    """
    boxes: list[Box] = []
    for number, axis_runs in enumerate(runs):
        copies = [[r for r in before if not r.is_fill] for before in runs[:number]]
        full_runs = [[_whole(after)] for after in runs[number + 1 :]]
        for run in axis_runs:
            if run.is_fill:
                boxes += [_filled(chosen, to, fill) for chosen in product(*copies, [run], *full_runs)]
    copied_runs = [[r for r in axis_runs if not r.is_fill] for axis_runs in runs]
    boxes += [_copied(chosen, to, source) for chosen in product(*copied_runs)]
    return [box for box in boxes if box.size]


def _whole(runs: Sequence[AxisRun]) -> AxisRun:
    return AxisRun.fill(sum(run.size for run in runs))


def _filled(runs: Sequence[AxisRun], to: Sequence[int], fill: int | None) -> Box:
    axes = tuple(Axis(n, t * stride) for run, stride in zip(runs, to, strict=True) for n, t, _ in run.axes)
    return Box(axes, sum(run.to * stride for run, stride in zip(runs, to, strict=True)), 0, fill)


def _copied(runs: Sequence[AxisRun], to: Sequence[int], source: Sequence[int]) -> Box:
    strides = list(zip(runs, to, source, strict=True))
    axes = tuple(Axis(n, t * out, s * source_stride) for run, out, source_stride in strides for n, t, s in run.axes)
    return Box(
        axes, sum(r.to * out for r, out, _ in strides), sum(r.start * source_stride for r, _, source_stride in strides)
    )


def repeated(axis: AxisRun, period: int, times: int) -> AxisRun:
    """A run that shows the same elements again every `period` places of the result."""
    return evolve(axis, axes=((times, period, 0), *axis.axes))


def simplified(box: Box, itemsize: int) -> Box:
    """Return an equivalent box with the minimum number of axes, but at least one, in the order of the result's memory."""
    axes = sorted((a for a in box.axes if a.count != 1), key=lambda a: -a.to)
    merged: list[Axis] = []
    for axis in axes:
        if merged and _is_continued(merged[-1], axis):
            merged[-1] = Axis(merged[-1].count * axis.count, axis.to, axis.source)
        else:
            merged.append(axis)
    return evolve(box, axes=tuple(merged) or (Axis(1, itemsize, itemsize),))


def _is_continued(outer: Axis, inner: Axis) -> bool:
    return outer.to == inner.count * inner.to and outer.source == inner.count * inner.source


def split(box: Box, block: int) -> Iterator[Box]:
    """Yield the box with its last axis cut into blocks of `block`, and the remainder."""
    *outer, last = box.axes
    blocks, left = divmod(last.count, block)
    if blocks:
        pair = (Axis(blocks, block * last.to, block * last.source), evolve(last, count=block))
        yield evolve(box, axes=(*outer, *pair))
    if left:
        done = blocks * block
        yield evolve(
            box,
            axes=(*outer, evolve(last, count=left)),
            to=box.to + done * last.to,
            start=box.start + done * last.source,
        )

"""Operations that move elements: slices, padding, repetition, triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr, smaller
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.shapes import on_value
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import is_sizes, settled, traced

FAR = 2**31 - 2
"""An end from which on it is beyond every axis: exporters write the largest integer of 32 or 64 bits."""


@handles("Slice", takes_sizes=True, takes_coded=True)
def cut(node: OnnxNode, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    rank = len(x.shape)
    if node.is_computed(1, 2) and starts.shape == ends.shape == (1,):
        return _cut_where_computed(node, x, (node.ints(3, "axes") or [0])[0], rank)
    first, last = node.dims(1, "starts"), node.dims(2, "ends")
    along = node.ints(3, "axes")
    along = list(range(len(first))) if along is None else along
    by = node.ints(4, "steps") or [1] * len(first)
    if not len(first) == len(last) == len(along) == len(by) or any(not -rank <= a < rank for a in along) or 0 in by:
        raise FormatError(f"{node}: starts {first}, ends {last}, axes {along} and steps {by} do not fit")
    index: list[Any] = [slice(None)] * rank
    for axis, start, end, step in zip(along, first, last, by, strict=True):
        size = x.shape[axis]
        index[axis % rank] = slice(_bound(start, size, step), _bound(end, size, step, is_end=True), step)
    if is_sizes(x):
        return settled(x[tuple(index)])
    if any(isinstance(each, Expr) for each in (*first, *last)):
        return on_value(x, lambda data: rlx.asarray(data)[tuple(index)])  # a table, sliced up to a size
    return on_value(x, lambda data: data[tuple(index)])


def _cut_where_computed(node: OnnxNode, x: Any, axis: int, rank: int) -> Any:
    """Return a slice of one axis whose start or end the program computes: its positions are determined on the host."""
    node.axis(axis, rank)

    def places(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> tuple[np.ndarray, ...]:
        step = 1 if steps is None else int(steps.item())
        return (np.arange(x.shape[axis])[slice(int(starts.item()), int(ends.item()), step)],)

    (result,) = node.on_host(places, lambda n: [rlx.TensorType(rlx.i64, (n,))], *range(5))
    return on_value(traced(x), lambda data: rlx.take(data, result, axis=axis))


def _bound(bound: Any, size: Any, step: int, *, is_end: bool = False) -> Any:
    """A start or an end as Python's slices write it: from the end where it is negative, none where it is beyond."""
    if isinstance(bound, Expr):
        return smaller(bound, size) if step > 0 and not isinstance(size, int) else bound
    if step > 0:
        if bound >= FAR:
            return size if not is_end else None
        if isinstance(size, int):
            return max(0, min(size, bound + size if bound < 0 else bound))
        if bound <= -FAR:
            return 0
        return bound if bound else (0 if is_end else None)
    if bound >= FAR:
        return None if not is_end else size - 1
    if isinstance(size, int):
        bound = bound + size if bound < 0 else bound
        if bound < 0:
            return None if is_end else -size - 1
        return min(size - 1, bound)
    return None if bound <= -FAR else bound


@handles("Pad", grows=True)
def pad(node: OnnxNode, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    """Cells before and after each axis: a constant, the edge, a reflection or a repetition; negative ones crop."""
    widths = node.dims(1, "pads")
    along = node.ints(3, "axes")
    along = list(range(x.ndim)) if along is None else [a % x.ndim for a in along]
    if len(widths) != 2 * len(along):
        raise FormatError(f"{node}: {len(widths)} pads for {len(along)} axes")
    pairs: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for axis, low, high in zip(along, widths[: len(along)], widths[len(along) :], strict=True):
        pairs[axis] = (low, high)
    mode = node.choice("mode", "constant", "edge", "reflect", "wrap")
    if mode == "constant":
        filled = np.zeros((), dtype_of(x.dtype).numpy) if value is None else value
        filled = rlx.reshape(filled, ()) if filled.ndim else filled
        if dtype_of(x.dtype).kind == "bool":
            return rlx.astype(
                rlx.pad(rlx.astype(x, rlx.u8), pairs, constant_values=rlx.astype(filled, rlx.u8)), rlx.bool_
            )
        return rlx.pad(x, pairs, constant_values=filled)
    crops = tuple(slice(max(0, -low), x.shape[i] - max(0, -high)) for i, (low, high) in enumerate(pairs))
    grown = [(max(0, low), max(0, high)) for low, high in pairs]
    cut_down = x[crops] if any(low < 0 or high < 0 for low, high in pairs) else x
    return rlx.pad(cut_down, grown, mode=mode)  # type: ignore[arg-type]  # one of the words above


@handles("Tile", grows=True)
def tile(node: OnnxNode, x: Any, repeats: Any) -> Any:
    times = node.dims(1, "repeats")
    if all(isinstance(n, int) for n in times):
        return rlx.tile(x, tuple(times))  # type: ignore[arg-type]
    separate = rlx.reshape(x, tuple(part for n in x.shape for part in (1, n)))
    spread = rlx.broadcast_to(separate, tuple(part for t, n in zip(times, x.shape, strict=True) for part in (t, n)))
    return rlx.reshape(spread, tuple(t * n for t, n in zip(times, x.shape, strict=True)))


@handles("Trilu")
def triangle(node: OnnxNode, x: Any, k: Any = None) -> Any:
    diagonal = int(node.scalar(1, "k", 0))
    rows, columns = x.shape[-2:]
    below = rlx.expand_dims(rlx.arange(columns), axis=0) - rlx.expand_dims(rlx.arange(rows), axis=1)
    keep = below >= diagonal if node.get("upper", 1) else below <= diagonal
    return rlx.where(keep, x, rlx.zeros_like(x))


@handles("ReverseSequence")
def reverse_sequence(node: OnnxNode, x: Any, lengths: Any) -> Any:
    """The first so many steps of each sequence in reverse order."""
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    return reversed_steps(x, lengths, time, batch)


def reversed_steps(x: Any, lengths: Any, time: int, batch: int) -> Any:
    """Return `x` with the first `lengths[b]` steps of sequence b reversed."""
    data = rlx.moveaxis(x, (batch, time), (0, 1))
    steps = rlx.expand_dims(rlx.arange(data.shape[1]), axis=0)
    counts = rlx.expand_dims(rlx.astype(lengths, rlx.i64), axis=1)
    places = rlx.where(steps < counts, counts - 1 - steps, steps)
    result = rlx.gather(data, places, axis=1, batch_dims=1)
    return rlx.moveaxis(result, (0, 1), (batch, time))

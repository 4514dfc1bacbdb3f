"""Convolutions and pools of channels-last operands, `[n, l.., c]`: windows are contiguous rows in memory.

An example's windows are then a view `[o.., k.., c]` of it, whose last axes are the terms of a product with weights `[(k.., c),
m]`, and adjacent elements are channels of one cell, so that vector loads stay contiguous with strided windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Value
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.convolution.folded import folded_matmul
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.convolution.phases import PhasesOfAxis, StridePhase
from rlx_core.ops.convolution.sliding import sliding_windows
from rlx_core.ops.creation import scalar, zeros_like
from rlx_core.ops.movement import concat, fitted, flip, narrow, pad, spread_size
from rlx_core.ops.structural import reshape, sum_axes, transpose

if TYPE_CHECKING:
    from rlx_core.ops.pooling.pool import PoolOp


def moved(x: Value) -> Value:
    """Return `[n, c, l..]` as `[n, l.., c]`."""
    return transpose(x, (0, *range(2, x.ndim), 1))


def moved_back(x: Value) -> Value:
    """Return `[n, l.., c]` as `[n, c, l..]`."""
    return transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def conv(x: Value, w: Value, geometry: Geometry, acc_dtype: DType | None = None) -> Value:
    """Return `Conv` of one group: `[n, l.., c]` and `[m, c, k..]` to `[n, o.., m]`.

    Integers with sums of `acc_dtype` are multiplied in pairs of channels, so that another channel of zeros makes their number
    even.
    """
    odd = int(acc_dtype is not None and w.shape[1] % 2 == 1)
    w = fitted(w, (0,) * w.ndim, (0, odd, *(0,) * geometry.rank))
    rows = reshape(transpose(w, (*range(2, w.ndim), 1, 0)), (product(w.shape[1:]), w.shape[0]))
    image = surrounded(x, geometry, channels=odd)
    if geometry.is_pointwise:
        return folded_matmul(image, rows, axes=1, acc_dtype=acc_dtype)
    return folded_matmul(windows(image, geometry), rows, axes=1 + geometry.rank, acc_dtype=acc_dtype)


def depthwise(x: Value, w: Value, geometry: Geometry, acc_dtype: DType | None = None) -> Value:
    """Return `Conv` whose groups are the channels, with one result each: `[n, l.., c]` and `[c, 1, k..]` to `[n, o.., c]`."""
    rank, cells = geometry.rank, geometry.cells
    # As a vector the weights are copied, and those of adjacent channels become adjacent.
    by_cell = reshape(transpose(w, (*range(2, w.ndim), 1, 0)), (cells * w.shape[0],))
    factors = reshape(by_cell, (*geometry.kernel, w.shape[0]))
    read = windows(surrounded(x, geometry), geometry)
    if acc_dtype is not None:
        read, factors = as_dtype(read, acc_dtype), as_dtype(factors, acc_dtype)
    return sum_axes(read * factors, axes=tuple(range(1 + rank, 1 + 2 * rank)))


def backward_input(dy: Value, w: Value, geometry: Geometry, sizes: tuple[int, ...]) -> Value:
    """Return `ConvBackwardInput` of one group: `[n, o.., m]` and `[m, c, k..]` to `[n, sizes.., c]`."""
    rank = geometry.rank
    if max(geometry.stride) > 1 and max(geometry.dilation) == 1:
        return _by_phases(dy, w, geometry, sizes)
    gaps = tuple(s - 1 for s in geometry.stride)
    before = tuple(e - 1 - lo for e, lo in zip(geometry.extents, geometry.lo, strict=True))
    after = tuple(sizes[i] + geometry.lo[i] - spread_size(dy.shape[1 + i], gaps[i]) for i in range(rank))
    spread = fitted(dy, (0, *before, 0), (0, *after, 0), (0, *gaps, 0) if any(gaps) else ())
    flipped = w if geometry.cells == 1 else flip(w, axes=tuple(range(2, 2 + rank)))
    ones, zeros = (1,) * rank, (0,) * rank
    weights = transpose(flipped, (1, 0, *range(2, 2 + rank)))
    return conv(spread, weights, Geometry(geometry.kernel, ones, geometry.dilation, zeros, zeros))


def _by_phases(dy: Value, w: Value, geometry: Geometry, sizes: tuple[int, ...]) -> Value:
    """Return the cotangent of a strided operand: per phase of its cells, a convolution with the kernel elements that reach it.

    Each is written at its own strided cells of the result. Cells that no element reaches are zeros.
    """
    rank, (n, c) = geometry.rank, (dy.shape[0], w.shape[1])
    axes = [PhasesOfAxis(*each) for each in zip(sizes, geometry.kernel, geometry.stride, geometry.lo, strict=True)]
    counts = dy.shape[1 : 1 + rank]
    before = tuple(axis.before for axis in axes)
    after = tuple(axis.end - o for axis, o in zip(axes, counts, strict=True))
    around = fitted(dy, (0, *before, 0), (0, *(max(0, cells) for cells in after), 0))

    def one(phases: Sequence[StridePhase]) -> Value:
        """Return the cells of a phase of each axis: `[n, (q, 1).., c]`."""
        read, weights = around, w
        for i, (axis, phase) in enumerate(zip(axes, phases, strict=True)):
            read = narrow(read, axis=1 + i, start=axis.before + phase.first, length=axis.cells + phase.elements - 1)
            weights = narrow(weights, axis=2 + i, start=phase.start, length=phase.elements, step=axis.stride)
        kernel = tuple(phase.elements for phase in phases)
        flipped = flip(weights, axes=tuple(range(2, 2 + rank))) if product(kernel) > 1 else weights
        ones, zeros = (1,) * rank, (0,) * rank
        rows = windows(read, Geometry(kernel, ones, ones, zeros, zeros))
        expanded = reshape(rows, (n, *(size for axis in axes for size in (axis.cells, 1)), *kernel, dy.shape[-1]))
        by_term = transpose(flipped, (*range(2, 2 + rank), 0, 1))
        return folded_matmul(expanded, reshape(by_term, (product(by_term.shape[:-1]), c)), axes=1 + rank)

    def joined(chosen: tuple[StridePhase, ...]) -> Value:
        """Return all phases of the axes without a chosen phase, from the first to the last that an element reaches."""
        if len(chosen) == rank:
            return one(chosen)
        axis = axes[len(chosen)]
        parts = [
            joined((*chosen, phase)) if phase.elements else None for phase in axis.phases[axis.first : axis.last + 1]
        ]
        filled = [zeros_like(parts[0]) if y is None else y for y in parts]
        return filled[0] if len(filled) == 1 else concat(filled, axis=2 + 2 * len(chosen))

    lo, hi = ([0] * (2 + 2 * rank) for _ in range(2))
    lo[2::2] = [axis.first for axis in axes]
    hi[2::2] = [axis.stride - 1 - axis.last for axis in axes]
    dx = reshape(fitted(joined(()), lo, hi), (n, *(axis.cells * axis.stride for axis in axes), c))
    for i, size in enumerate(sizes):
        dx = narrow(dx, axis=1 + i, start=0, length=size)
    return dx


def backward_weight(x: Value, dy: Value, geometry: Geometry) -> Value:
    """Return `ConvBackwardWeight` of one group: `[n, l.., c]` and `[n, o.., m]` to `[m, c, k..]`."""
    rank = geometry.rank
    read = windows(surrounded(x, geometry), geometry)
    rows = transpose(read, (*range(1 + rank, 2 + 2 * rank), *range(1 + rank)))
    places = reshape(dy, (product(dy.shape[:-1]), dy.shape[-1]))
    dw = folded_matmul(rows, places, axes=1 + rank)
    return transpose(dw, (1 + rank, rank, *range(rank)))


def pooled(op: PoolOp, x: Value) -> Value:
    """Return a pool of `[n, l.., c]`."""
    geometry = op.geometry(op.kernel)
    rank = geometry.rank
    return op.over(windows(surrounded(x, geometry, op.fill(x)), geometry), tuple(range(1 + rank, 1 + 2 * rank)))


def surrounded(x: Value, geometry: Geometry, fill: Any = 0, channels: int = 0) -> Value:
    """Return `x` with its padding, and `channels` more at the end."""
    if not (geometry.is_padded or channels):
        return x
    padded: Value = pad(x, scalar(fill, x.dtype), lo=(0, *geometry.lo, 0), hi=(0, *geometry.hi, channels))
    return padded


def windows(x: Value, geometry: Geometry) -> Value:
    """Return `[n, o.., k.., c]` of a padded operand."""
    rank = geometry.rank
    result = sliding_windows(moved_back(x), kernel=geometry.kernel, stride=geometry.stride, dilation=geometry.dilation)
    return transpose(result, (0, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank), 1))

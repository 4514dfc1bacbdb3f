"""Counts and sums by group: bins of a histogram, segments of an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.ops.arguments import flag, listed, number
from rlx_core.ops.arithmetic import divide, maximum, minimum, multiply, subtract
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_search import searchsorted
from rlx_core.ops.array_shapes import reshape, shape_of
from rlx_core.ops.array_statistics import diff, max, min, sum
from rlx_core.ops.comparison import equal, greater_equal, less_equal, logical_and
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import full, iota, ones
from rlx_core.ops.linalg import operand
from rlx_core.ops.numeric.elementwise import floating
from rlx_core.ops.scatter import scatter
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def bincount(x: ArrayLike, weights: ArrayLike | None = None, *, length: Dim) -> Array:
    """The number of occurrences of each of 0 … `length` - 1 in `x`, or the sum of the weights at the same positions.

    The length is an argument, because sizes are known before a program runs. Values out of range are not counted.

    Args:
        x: i[n].
        weights: [n], or none for i64 counts.
        length: The length of the result.

    Raises:
        ShapeError: `x` does not have one axis, or the weights have another shape.
    """
    if len(shape_of(x)) != 1:
        raise ShapeError(f"bincount: x is a line of integers, not {list(shape_of(x))}")
    return segment_sum(ones(shape_of(x), "i64") if weights is None else weights, x, length)


@checked_call
def histogram(
    x: ArrayLike,
    bins: ArrayLike = 10,
    range: tuple[float, float] | None = None,
    weights: ArrayLike | None = None,
    density: bool = False,
) -> tuple[Array, Array]:
    """The number of elements of `x` in each bin, and the edges of the bins; the last bin includes its upper edge.

    Args:
        x: Real numbers of any shape.
        bins: The number of bins of equal width, or their edges in order.
        range: The lower and upper bound; by default that of `x`. Elements outside are not counted.
        weights: The weights that are summed instead of ones, of the shape of `x`.
        density: Whether the counts are divided by their sum and the width of the bin.

    Raises:
        ConfigError: `bins` is not a number of at least 1, or the range is decreasing.
        ShapeError: The weights have another shape.
    """
    x = reshape(floating(x), (-1,))
    edges = _edges(x, bins, range) if not shape_of(bins) else floating(bins)
    if len(shape_of(edges)) != 1 or shape_of(edges)[0] < 2:
        raise ShapeError(f"histogram: edges are a line of 2 or more, not {list(shape_of(edges))}")
    count = shape_of(edges)[0] - 1
    known = asarray(edges, x.dtype)
    place = minimum(subtract(searchsorted(known, x, side="right"), 1), count - 1)
    inside = logical_and(greater_equal(x, known[0]), less_equal(x, known[-1]))
    ones_or_weights = ones(shape_of(x), "i64") if weights is None else reshape(operand(weights), (-1,))
    counts = segment_sum(ones_or_weights, where(inside, place, -1), count)
    if flag("histogram: density", density):
        counts = cast(counts, to=known.dtype) if dtype_of(counts).is_integer else counts
        counts = divide(divide(counts, sum(counts)), diff(known))
    return counts, known


def _edges(x: Any, bins: Any, range: tuple[float, float] | None) -> Any:
    ends = None if range is None else [number("histogram: range", end) for end in listed("histogram: range", range)]
    if ends is not None and (len(ends) != 2 or ends[0] > ends[1]):
        raise ConfigError(f"histogram: range is two numbers that go up, not {range!r}")
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise ConfigError(f"histogram: bins is a number of at least 1 or a line of edges, not {bins!r}")
    low, high = (min(x), max(x)) if ends is None else (asarray(end, x.dtype) for end in ends)
    # If all numbers are equal, NumPy's bins have a total width of 1.
    low, high = where(equal(low, high), low - 0.5, low), where(equal(low, high), high + 0.5, high)
    steps = cast(iota(axis=0, shape=(bins + 1,)), to=x.dtype)
    even = low + multiply(steps, divide(high - low, bins))
    return where(equal(steps, bins), high, even)


@checked_call
def segment_sum(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The sums of the rows of `data` with the same segment id; 0 for an id without rows.

    Args:
        data: [n, ..].
        segment_ids: i[n], in any order; rows with an id outside of 0 … `num_segments` - 1 are ignored.
        num_segments: The first size of the result.

    Raises:
        ShapeError: The numbers of rows and ids differ.
    """
    return _segments("segment_sum", "add", 0, data, segment_ids, num_segments)


@checked_call
def segment_prod(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The products of segments, with the arguments of `segment_sum`; 1 for an empty segment."""
    return _segments("segment_prod", "mul", 1, data, segment_ids, num_segments)


@checked_call
def segment_max(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The largest element of each segment, with the arguments of `segment_sum`; the lowest number, or -∞, if it is empty."""
    return _segments("segment_max", "max", _extreme(data, lowest=True), data, segment_ids, num_segments)


@checked_call
def segment_min(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The smallest element of each segment, with the arguments of `segment_sum`; the largest number, or ∞, if it is empty."""
    return _segments("segment_min", "min", _extreme(data, lowest=False), data, segment_ids, num_segments)


@checked_call
def segment_mean(data: ArrayLike, segment_ids: ArrayLike, num_segments: Dim) -> Array:
    """The means of segments, with the arguments of `segment_sum`; 0 for an empty segment."""
    values = floating(data)
    total = segment_sum(values, segment_ids, num_segments)
    rows = segment_sum(ones(shape_of(values)[:1], values.dtype), segment_ids, num_segments)
    return divide(total, reshape(maximum(rows, 1), (-1, *[1] * (len(shape_of(values)) - 1))))


def _segments(name: str, mode: Any, start: Any, data: Any, ids: Any, count: Dim) -> Any:
    data, ids = operand(data), operand(ids)
    if len(shape_of(ids)) != 1 or not shape_of(data) or shape_of(data)[0] != shape_of(ids)[0]:
        raise ShapeError(f"{name}: data {list(shape_of(data))} has rows numbered by [n], not by {list(shape_of(ids))}")
    empty = full((count, *shape_of(data)[1:]), start, dtype_of(data))
    known = logical_and(greater_equal(ids, 0), ids < count)
    return scatter(empty, data, where(known, ids, count), mode=mode, oob="fill")


def _extreme(data: Any, *, lowest: bool) -> Any:
    data_dtype = dtype_of(data)
    if not data_dtype.is_real:
        raise DtypeError(f"segments have extremes of real numbers, not of {data_dtype}")
    if data_dtype.is_float:
        return -np.inf if lowest else np.inf
    bounds = np.iinfo(data_dtype.numpy)
    return bounds.min if lowest else bounds.max

"""The search functions of the Python Array API: extremes, order, positions, and sets.

The number of elements that `nonzero` or a set function returns depends on the data. They work on arrays outside of a program;
sizes in a program are known before it runs, so values of a program are refused by name, with an alternative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rlx_core.errors import AxisError, ShapeError, TraceError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Value
from rlx_core.ir.types import broadcast_shapes, normalize_axis
from rlx_core.ops import along_axis, counting, indexing, sorting
from rlx_core.ops.arguments import flag
from rlx_core.ops.array_shapes import broadcast_to, reshape, shape_of
from rlx_core.ops.array_statistics import one_axis
from rlx_core.ops.getitem import from_front, in_dtype_of_size
from rlx_core.ops.linalg import operand
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def argmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first largest element of `axis`; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_max, x, axis, keepdims)


@checked_call
def argmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest element of `axis`; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_min, x, axis, keepdims)


def _arg_extreme(find: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    rank = len(shape_of(x))
    if axis is not None:
        return find(x, axis=normalize_axis(axis, rank), keep_dim=keepdims)
    place = find(reshape(x, -1), axis=0)
    return reshape(place, (1,) * rank) if flag("keepdims", keepdims) else place


@checked_call
def sort(x: ArrayLike, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements of `axis` in order; NaN is larger than every number."""
    place = normalize_axis(axis, len(shape_of(x)))
    return sorting.sort_with_indices(x, axis=place, descending=descending, stable=stable)[0]


@checked_call
def argsort(x: ArrayLike, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort the elements of `axis`; ties stay in index order."""
    place = normalize_axis(axis, len(shape_of(x)))
    return sorting.arg_sort(x, axis=place, descending=descending, stable=stable)


@checked_call
def top_k(x: ArrayLike, k: Dim, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) elements of `axis` in order, and their indices."""
    values, places = sorting.top_k(x, k=k, axis=normalize_axis(axis, len(shape_of(x))), largest=largest)
    return values, places


@checked_call
def searchsorted(
    x1: ArrayLike, x2: ArrayLike, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
) -> Array:
    """The positions to insert the elements of `x2` into `x1`, which is sorted, or which `sorter` (from `argsort`) sorts."""
    return sorting.search_sorted(x1 if sorter is None else take(x1, sorter, axis=0), x2, side=side)


@checked_call
def take(
    x: ArrayLike, indices: ArrayLike, axis: int | None = None, out_of_bounds: indexing.OutOfBounds = "error"
) -> Array:
    """Elements of `axis` at indices; negative ones count from the end.

    With `out_of_bounds` "clip" or "fill" a negative index is outside of the axis.
    """
    place = one_axis("take", x, axis)
    oob = indexing.checked_policy("take", out_of_bounds)
    if oob == "error":
        indices = _from_front(indices, shape_of(x)[place])
    return indexing.gather(x, indices, axis=place, oob=oob)


def _from_front(indices: Any, size: Dim) -> Any:
    """Return indices counted from the front; those outside of the axis are unchanged, for the error that names them."""
    if isinstance(indices, Value):
        if indices.dtype.kind != "int":
            return indices
        places, length = in_dtype_of_size(indices, size)
        return where((places < 0) & (places >= -length), places + length, places)
    array = as_array(indices)
    if array.dtype.kind != "i" or not (array < 0).any():
        return indices
    if not isinstance(size, int):
        return from_front(array, size)
    return np.where((array < 0) & (array >= -size), array.astype(np.int64) + size, array)


@checked_call
def take_along_axis(
    x: ArrayLike, indices: ArrayLike, axis: int = -1, out_of_bounds: indexing.OutOfBounds = "error"
) -> Array:
    """One element of `axis` for each index, counted from the front; the other axes broadcast."""
    oob = indexing.checked_policy("take_along_axis", out_of_bounds)
    rank = len(shape_of(x))
    if len(shape_of(indices)) != rank:
        raise ShapeError(f"take_along_axis: indices have {len(shape_of(indices))} axes, x has {rank}")
    place = normalize_axis(axis, rank)

    def others(v: Any) -> tuple[Dim, ...]:
        return tuple(d for i, d in enumerate(shape_of(v)) if i != place)

    common = list(broadcast_shapes(others(x), others(indices)))
    shapes = [(*common[:place], shape_of(v)[place], *common[place:]) for v in (x, indices)]
    source, places = (
        v if tuple(shape_of(v)) == shape else broadcast_to(v, shape)
        for v, shape in zip((x, indices), shapes, strict=True)
    )
    return along_axis.take_along_axis(source, places, axis=place, oob=oob)


@checked_call
def nonzero(x: ArrayLike) -> tuple[Array, ...]:
    """The positions of the elements that are not 0, an i64 array for each axis, in row-major order.

    Raises:
        TraceError: `x` is a value of a program, whose sizes are known before it runs.
        AxisError: `x` has no axes.
    """
    array = _known("nonzero", x, "rlx.where to select, rlx.count_nonzero to count, rlx.top_k for the first few")
    if array.ndim == 0:
        raise AxisError("nonzero: x has no axes", hint="rlx.reshape(x, -1)")
    return tuple(_made(positions) for positions in np.nonzero(array))


class UniqueAllResult(NamedTuple):
    """The result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """The result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """The result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


@checked_call
def unique_all(x: ArrayLike) -> UniqueAllResult:
    """The distinct elements in order, the first index of each, the index in these of each element of `x`, and their counts.

    Every NaN is distinct; 0.0 and -0.0 are equal.

    Raises:
        TraceError: `x` is a value of a program, whose sizes are known before it runs.
    """
    array = _known("unique_all", x, _NEIGHBOURS)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return UniqueAllResult(_made(values), _made(first), _made(inverse.reshape(array.shape)), _made(counts))


@checked_call
def unique_counts(x: ArrayLike) -> UniqueCountsResult:
    """The distinct elements in order, and the count of each; see `unique_all`."""
    values, counts = np.unique(_known("unique_counts", x, _NEIGHBOURS), return_counts=True, equal_nan=False)
    return UniqueCountsResult(_made(values), _made(counts))


@checked_call
def unique_inverse(x: ArrayLike) -> UniqueInverseResult:
    """The distinct elements in order, and the index in these of each element of `x`; see `unique_all`."""
    array = _known("unique_inverse", x, _NEIGHBOURS)
    values, inverse = np.unique(array, return_inverse=True, equal_nan=False)
    return UniqueInverseResult(_made(values), _made(inverse.reshape(array.shape)))


@checked_call
def unique_values(x: ArrayLike) -> Array:
    """The distinct elements in order; see `unique_all`."""
    return _made(np.unique(_known("unique_values", x, _NEIGHBOURS), equal_nan=False))


_NEIGHBOURS = "rlx.sort, and compare neighbours"


def _known(name: str, x: Any, instead: str) -> np.ndarray:
    """Return the elements of an array outside of a program.

    Raises:
        TraceError: It is a value of a program.
    """
    if isinstance(x, Value):
        raise TraceError(
            f"{name}: how many elements it finds is only known when the program runs, and sizes are known before",
            hint=f"use {instead}; outside of a program {name} works",
        )
    return as_array(x)


def _made(array: np.ndarray) -> Any:
    """Return a result as an rlx array; positions and counts are i64 on every machine."""
    return operand(array if array.dtype != np.intp else array.astype(np.int64, copy=False))

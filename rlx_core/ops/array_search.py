"""The functions of the Python Array API that look for elements: extremes, order, positions, and the sets that have no size.

How many elements `nonzero` or a function of sets finds depends on the data. Sizes are known before a program runs, so these are
refused by name, with what serves instead.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, NoReturn

from rlx_core.errors import ShapeError, TraceError
from rlx_core.ir.dims import Dim
from rlx_core.ir.types import broadcast_shapes, normalize_axis
from rlx_core.ops import along_axis, counting, indexing, sorting
from rlx_core.ops.array_shapes import broadcast_to, reshape, shape_of
from rlx_core.ops.array_statistics import one_axis


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the first largest element of `axis` is; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_max, x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the first smallest element of `axis` is; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_min, x, axis, keepdims)


def _arg_extreme(find: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    rank = len(shape_of(x))
    if axis is not None:
        return find(x, axis=normalize_axis(operator.index(axis), rank), keep_dim=keepdims)
    place = find(reshape(x, -1), axis=0)
    return reshape(place, (1,) * rank) if keepdims else place


def sort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements of `axis` in order; NaN is larger than every number."""
    place = normalize_axis(axis, len(shape_of(x)))
    return sorting.sort_with_indices(x, axis=place, descending=descending, stable=stable)[0]


def argsort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Where the elements of `axis` in order came from; ties stay in index order."""
    place = normalize_axis(axis, len(shape_of(x)))
    return sorting.arg_sort(x, axis=place, descending=descending, stable=stable)


def top_k(x: Any, k: Dim, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """The k largest (or smallest) elements of `axis` in order, and where they are."""
    values, places = sorting.top_k(x, k=k, axis=normalize_axis(axis, len(shape_of(x))), largest=largest)
    return values, places


def searchsorted(x1: Any, x2: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Any:
    """Where the elements of `x2` would be inserted into `x1`, which is sorted, or which `sorter` (from `argsort`) sorts."""
    return sorting.search_sorted(x1 if sorter is None else take(x1, sorter, axis=0), x2, side=side)


def take(x: Any, indices: Any, axis: int | None = None, oob: indexing.OutOfBounds = "error") -> Any:
    """Elements of `axis` at indices counted from the front; `x[indices]` also counts from the end."""
    return indexing.gather(x, indices, axis=one_axis("take", x, axis), oob=oob)


def take_along_axis(x: Any, indices: Any, axis: int = -1, oob: indexing.OutOfBounds = "error") -> Any:
    """One element of `axis` for each index, counted from the front; the other axes broadcast."""
    rank = len(shape_of(x))
    if len(shape_of(indices)) != rank:
        raise ShapeError(f"take_along_axis: indices have {len(shape_of(indices))} axes, x has {rank}")
    place = normalize_axis(axis, rank)

    def others(v: Any) -> tuple[Dim, ...]:
        return tuple(d for i, d in enumerate(shape_of(v)) if i != place)

    common = list(broadcast_shapes(others(x), others(indices)))
    wanted = [(*common[:place], shape_of(v)[place], *common[place:]) for v in (x, indices)]
    own, places = (
        v if tuple(shape_of(v)) == shape else broadcast_to(v, shape)
        for v, shape in zip((x, indices), wanted, strict=True)
    )
    return along_axis.take_along_axis(own, places, axis=place, oob=oob)


def nonzero(x: Any) -> NoReturn:
    """Not possible: how many elements are not 0 is only known when the program runs, and sizes must be known before."""
    _refuse_unknown_size("nonzero", "rlx.where to select, rlx.count_nonzero to count, rlx.top_k for the first few")


def unique_values(x: Any) -> NoReturn:
    """Not possible: how many values are distinct is only known when the program runs."""
    _refuse_unknown_size("unique_values", _NEIGHBOURS)


def unique_counts(x: Any) -> NoReturn:
    """Not possible: how many values are distinct is only known when the program runs."""
    _refuse_unknown_size("unique_counts", _NEIGHBOURS)


def unique_inverse(x: Any) -> NoReturn:
    """Not possible: how many values are distinct is only known when the program runs."""
    _refuse_unknown_size("unique_inverse", _NEIGHBOURS)


def unique_all(x: Any) -> NoReturn:
    """Not possible: how many values are distinct is only known when the program runs."""
    _refuse_unknown_size("unique_all", _NEIGHBOURS)


_NEIGHBOURS = "rlx.sort, and compare neighbours"


def _refuse_unknown_size(name: str, instead: str) -> NoReturn:
    raise TraceError(
        f"{name}: how many elements it finds is only known when the program runs, and sizes are known before",
        hint=f"use {instead}; on a NumPy array, NumPy's own function",
    )

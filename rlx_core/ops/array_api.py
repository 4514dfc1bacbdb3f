"""The functions users call for reductions, order, slices, shapes and creation, named as the Python Array API names them.

Those that only move elements are in `array_shapes.py`, those that make arrays in `creation.py`; here are all names. Each
is a thin front for an op or a composition of a few; the ops have the attributes, the rules and the meaning. Operands are
values, arrays or numbers; axes may be negative and are counted from the front before they reach an op.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

from rlx_core.errors import ShapeError, TraceError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops import conversion, counting, cumulative, indexing, reduction, sorting, structural
from rlx_core.ops.along_axis import put_along_axis, take_along_axis
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.array_shapes import (
    Axis,
    axes_of,
    broadcast_arrays,
    broadcast_to,
    diag,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    shape_of,
    split,
    squeeze,
    stack,
    tile,
    unstack,
)
from rlx_core.ops.creation import (
    arange,
    eye,
    full,
    full_like,
    linspace,
    one_hot,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from rlx_core.ops.getitem import getitem
from rlx_core.ops.movement import concat
from rlx_core.ops.operators import install
from rlx_core.ops.rearrange import diagonal, tril, triu

__all__ = [
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "astype",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diag",
    "diagonal",
    "expand_dims",
    "eye",
    "flip",
    "full",
    "full_like",
    "linspace",
    "logsumexp",
    "matrix_transpose",
    "max",
    "mean",
    "min",
    "moveaxis",
    "nonzero",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "permute_dims",
    "prod",
    "put_along_axis",
    "repeat",
    "reshape",
    "roll",
    "searchsorted",
    "sort",
    "split",
    "squeeze",
    "stack",
    "std",
    "sum",
    "take",
    "take_along_axis",
    "tile",
    "top_k",
    "tril",
    "triu",
    "unique_values",
    "unstack",
    "var",
    "zeros",
    "zeros_like",
]

_dtype = dtype


def _one_axis(name: str, x: Any, axis: int | None) -> int:
    """The axis of a function that works along one; it may be left out where there is only one.

    Raises:
        ShapeError: It is left out and `x` has other than one axis.
    """
    rank = len(shape_of(x))
    if axis is None and rank != 1:
        raise ShapeError(f"{name}: x has {rank} axes, so the axis must be given")
    return 0 if axis is None else normalize_axis(axis, rank)


def _in(x: Any, dtype: DType | str | None) -> Any:
    return x if dtype is None else astype(x, dtype)


def astype(x: Any, dtype: DType | str) -> Any:
    """`x` in another dtype; the same value where it has it already."""
    target = _dtype(dtype)
    return x if isinstance(x, Value) and x.dtype is target else conversion.cast(x, to=target)


def sum(x: Any, axis: Axis = None, dtype: DType | str | None = None, keepdims: bool = False) -> Any:
    """The sum over `axis`, held in `dtype` where one is given; bool counts in i64, other dtypes stay."""
    return structural.sum_axes(_in(x, dtype), axes=axes_of(x, axis), keep_dim=keepdims)


def prod(x: Any, axis: Axis = None, dtype: DType | str | None = None, keepdims: bool = False) -> Any:
    """The product over `axis`, held in `dtype` where one is given."""
    return reduction.prod_axes(_in(x, dtype), axes=axes_of(x, axis), keep_dim=keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean over `axis`; integers are averaged in f32, 64-bit ones in f64."""
    return reduction.mean_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


def var(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance over `axis` in two passes, divided by n - correction."""
    return reduction.var_axes(
        x, axes=axes_of(x, axis), keep_dim=keepdims, correction=number("var: correction", correction)
    )


def std(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The standard deviation over `axis`: the root of the variance."""
    return reduction.std_axes(
        x, axes=axes_of(x, axis), keep_dim=keepdims, correction=number("std: correction", correction)
    )


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element over `axis`; NaN propagates."""
    return reduction.max_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element over `axis`; NaN propagates."""
    return reduction.min_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log Σ e^x over `axis`, without overflow."""
    return reduction.log_sum_exp(x, axes=axes_of(x, axis), keep_dim=keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any element over `axis` is not 0."""
    return counting.any_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are not 0."""
    return counting.all_axes(x, axes=axes_of(x, axis), keep_dim=keepdims)


def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """How many elements over `axis` are not 0."""
    return counting.count_nonzero(x, axes=axes_of(x, axis), keep_dim=keepdims)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the first largest element of `axis` is; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_max, x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the first smallest element of `axis` is; without an axis, in the row-major order of all."""
    return _arg_extreme(counting.arg_min, x, axis, keepdims)


def _arg_extreme(find: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    rank = len(shape_of(x))
    if axis is not None:
        return find(x, axis=normalize_axis(axis, rank), keep_dim=keepdims)
    place = find(reshape(x, -1), axis=0)
    return reshape(place, (1,) * rank) if flag("keepdims", keepdims) else place


def cumulative_sum(
    x: Any, axis: int | None = None, dtype: DType | str | None = None, include_initial: bool = False
) -> Any:
    """Running sums along `axis`; `include_initial` puts the 0 in front that they start from."""
    place = _one_axis("cumulative_sum", x, axis)
    return _after_initial(cumulative.cumsum(_in(x, dtype), axis=place), place, 0 if include_initial else None)


def cumulative_prod(
    x: Any, axis: int | None = None, dtype: DType | str | None = None, include_initial: bool = False
) -> Any:
    """Running products along `axis`; `include_initial` puts the 1 in front that they start from."""
    place = _one_axis("cumulative_prod", x, axis)
    return _after_initial(cumulative.cumprod(_in(x, dtype), axis=place), place, 1 if include_initial else None)


def _after_initial(x: Any, axis: int, initial: int | None) -> Any:
    if initial is None:
        return x
    shape = list(shape_of(x))
    shape[axis] = 1
    return concat([full(shape, initial, _dtype(x.dtype)), x], axis=axis)


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


def searchsorted(x1: Any, x2: Any, side: Literal["left", "right"] = "left") -> Any:
    """Where the elements of `x2` would be inserted into the sorted `x1`."""
    return sorting.search_sorted(x1, x2, side=side)


def take(x: Any, indices: Any, axis: int | None = None, oob: indexing.OutOfBounds = "error") -> Any:
    """Elements of `axis` at indices counted from the front; `x[indices]` also counts from the end."""
    return indexing.gather(x, indices, axis=_one_axis("take", x, axis), oob=oob)


def nonzero(x: Any) -> NoReturn:
    """Not possible: how many elements are not 0 is only known when the program runs, and sizes must be known before."""
    _refuse_unknown_size("nonzero", "rlx.where to select, rlx.count_nonzero to count, rlx.top_k for the first few")


def unique_values(x: Any) -> NoReturn:
    """Not possible: how many values are distinct is only known when the program runs."""
    _refuse_unknown_size("unique_values", "rlx.sort, and compare neighbours")


def _refuse_unknown_size(name: str, instead: str) -> NoReturn:
    raise TraceError(
        f"{name}: how many elements it finds is only known when the program runs, and sizes are known before",
        hint=f"use {instead}; on a NumPy array, NumPy's own function",
    )


install(
    getitem=getitem,
    max=max,
    mean=mean,
    min=min,
    permute_dims=permute_dims,
    reshape=reshape,
    sum=sum,
)

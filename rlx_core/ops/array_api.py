"""The functions users call for shapes, slices, reductions, order and creation, named as the Python Array API names them.

Each is a thin front for an op or a composition of a few; the ops have the attributes, the rules and the meaning. Operands are
values, arrays or numbers; axes may be negative and are counted from the front before they reach an op.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NoReturn

import numpy as np

from rlx_core.errors import ShapeError, TraceError
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim, Expr, exact_quotient
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape, broadcast_shapes, normalize_axes, normalize_axis
from rlx_core.ops import counting, cumulative, indexing, movement, rearrange, reduction, sorting, structural
from rlx_core.ops.along_axis import put_along_axis, take_along_axis
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

Axis = int | Sequence[int] | None
_dtype = dtype


def shape_of(x: Any) -> Shape:
    """The dims of a value, an array or a number."""
    return x.shape if isinstance(x, Value) else as_array(x).shape


def _numbers(n: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(operator.index(i) for i in n) if isinstance(n, Sequence) else (operator.index(n),)


def _axes(x: Any, axis: Axis) -> tuple[int, ...]:
    rank = len(shape_of(x))
    return tuple(range(rank)) if axis is None else normalize_axes(_numbers(axis), rank)


def _one_axis(name: str, x: Any, axis: int | None) -> int:
    """The axis of a function that works along one; it may be left out where there is only one.

    Raises:
        ShapeError: It is left out and `x` has other than one axis.
    """
    rank = len(shape_of(x))
    if axis is None and rank != 1:
        raise ShapeError(f"{name}: x has {rank} axes, so the axis must be given")
    return 0 if axis is None else normalize_axis(operator.index(axis), rank)


def _in(x: Any, dtype: DType | str | None) -> Any:
    return x if dtype is None else astype(x, dtype)


def astype(x: Any, dtype: DType | str) -> Any:
    """`x` in another dtype; the same value where it has it already."""
    target = _dtype(dtype)
    return x if isinstance(x, Value) and x.dtype is target else structural.cast(x, to=target)


def sum(x: Any, axis: Axis = None, dtype: DType | str | None = None, keepdims: bool = False) -> Any:
    """The sum over `axis`, held in `dtype` where one is given; bool counts in i64, other dtypes stay."""
    return structural.sum_axes(_in(x, dtype), axes=_axes(x, axis), keep_dim=keepdims)


def prod(x: Any, axis: Axis = None, dtype: DType | str | None = None, keepdims: bool = False) -> Any:
    """The product over `axis`, held in `dtype` where one is given."""
    return reduction.prod_axes(_in(x, dtype), axes=_axes(x, axis), keep_dim=keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean over `axis`; integers are averaged in f32, 64-bit ones in f64."""
    return reduction.mean_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def var(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance over `axis` in two passes, divided by n - correction."""
    return reduction.var_axes(x, axes=_axes(x, axis), keep_dim=keepdims, correction=float(correction))


def std(x: Any, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The standard deviation over `axis`: the root of the variance."""
    return reduction.std_axes(x, axes=_axes(x, axis), keep_dim=keepdims, correction=float(correction))


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element over `axis`; NaN propagates."""
    return reduction.max_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element over `axis`; NaN propagates."""
    return reduction.min_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log Σ e^x over `axis`, without overflow."""
    return reduction.log_sum_exp(x, axes=_axes(x, axis), keep_dim=keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any element over `axis` is not 0."""
    return counting.any_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are not 0."""
    return counting.all_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """How many elements over `axis` are not 0."""
    return counting.count_nonzero(x, axes=_axes(x, axis), keep_dim=keepdims)


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


def reshape(x: Any, shape: Sequence[Dim] | Dim) -> Any:
    """The same elements in row-major order with other dims, one of which may be -1."""
    return structural.reshape(x, new_shape=(shape,) if isinstance(shape, int | Expr) else shape)


def permute_dims(x: Any, axes: Sequence[int]) -> Any:
    """Axis `i` of the result is axis `axes[i]` of `x`."""
    rank = len(shape_of(x))
    return structural.transpose(x, perm=[normalize_axis(a, rank) for a in axes])


def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    rank = len(shape_of(x))
    if rank < 2:
        raise ShapeError(f"matrix_transpose: x must have 2 or more axes, not {rank}")
    return structural.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Axes moved to other places; the rest keep their order."""
    rank = len(shape_of(x))
    origins, targets = ([normalize_axis(a, rank) for a in _numbers(axes)] for axes in (source, destination))
    normalize_axes(origins, rank), normalize_axes(targets, rank)
    if len(origins) != len(targets):
        raise ShapeError(f"moveaxis: {len(origins)} axes cannot move to {len(targets)} places")
    order = [a for a in range(rank) if a not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return structural.transpose(x, perm=order)


def broadcast_to(x: Any, shape: Sequence[Dim]) -> Any:
    """`x` repeated to `shape`."""
    return structural.expand(x, target=shape)


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The operands repeated to their common shape."""
    shape = broadcast_shapes(*map(shape_of, arrays))
    return [x if shape_of(x) == shape else broadcast_to(x, shape) for x in arrays]


def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Any:
    """`x` with axes of size 1 at the positions `axis` of the result."""
    shape, new = list(shape_of(x)), _numbers(axis)
    for place in normalize_axes(new, len(shape) + len(new)):
        shape.insert(place, 1)
    return structural.reshape(x, new_shape=shape)


def squeeze(x: Any, axis: Axis = None) -> Any:
    """`x` without the listed axes, which must have size 1; without a list, all that are known to."""
    shape = shape_of(x)
    if axis is None:
        return structural.reshape(x, new_shape=[d for d in shape if d != 1])
    dropped = _axes(x, axis)
    for place in dropped:
        if shape[place] != 1:
            raise ShapeError(f"squeeze: axis {place} has {shape[place]} elements, not 1")
    return structural.reshape(x, new_shape=[d for i, d in enumerate(shape) if i not in dropped])


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Tensors of one shape joined along a new axis."""
    return concat([expand_dims(x, axis) for x in arrays], axis=_new_axis(arrays, axis))


def _new_axis(arrays: Sequence[Any], axis: int) -> int:
    return normalize_axis(axis, len(shape_of(arrays[0])) + 1) if arrays else 0


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices of an axis of known size, each without it."""
    place = normalize_axis(axis, len(shape_of(x)))
    return tuple(squeeze(part, place) for part in split(x, shape_of(x)[place].__index__(), place))


def split(x: Any, sections: int | Sequence[Dim], axis: int = 0) -> list[Any]:
    """An axis cut into equal parts, or at the positions listed.

    Raises:
        ShapeError: The parts cannot be equal.
    """
    place = normalize_axis(axis, len(shape_of(x)))
    size = shape_of(x)[place]
    if isinstance(sections, int):
        if sections == 0 and size == 0:
            return []
        length = exact_quotient(size, sections)
        cuts: list[Dim] = [length * i for i in range(sections + 1)]
    else:
        cuts = [0, *sections, size]
    return [movement.narrow(x, axis=place, start=start, length=end - start) for start, end in pairwise(cuts)]


def flip(x: Any, axis: Axis = None) -> Any:
    """The elements of the listed axes, or of all, in reverse order."""
    return movement.flip(x, axes=_axes(x, axis))


def roll(x: Any, shift: int | Sequence[int], axis: Axis = None) -> Any:
    """Elements moved on along `axis`, entering again at the other end; without an axis, in row-major order."""
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), shape_of(x))
    rank = len(shape_of(x))
    axes = [normalize_axis(a, rank) for a in _numbers(axis)]
    shifts = _numbers(shift)
    return rearrange.roll_axes(x, shift=shifts * len(axes) if len(shifts) == 1 else shifts, axes=axes)


def tile(x: Any, repetitions: int | Sequence[int]) -> Any:
    """`x` repeated as a whole along its axes."""
    return rearrange.tile(x, repeats=_numbers(repetitions))


def repeat(x: Any, repeats: int | Sequence[int] | np.ndarray, axis: int | None = None) -> Any:
    """Each element repeated in place along `axis`, all alike or each by its own known number; flat without an axis."""
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    place, counts = normalize_axis(axis, len(shape_of(x))), np.asarray(repeats)
    if counts.ndim == 0:
        return rearrange.repeat_each(x, repeats=int(counts), axis=place)
    size = shape_of(x)[place]
    if counts.shape != (size,) or (counts < 0).any():
        raise ShapeError(
            f"repeat: axis {place} of {size} elements takes {size} numbers of at least 0, not {counts.tolist()}"
        )
    return indexing.gather(x, np.repeat(np.arange(len(counts)), counts), axis=place)


def pad(
    x: Any,
    pad_width: int | Sequence[Any],
    mode: movement.PadMode = "constant",
    value: Any = None,
) -> Any:
    """Cells around `x`: one number, one pair for all axes, or one pair (before, after) for each; negative ones crop."""
    rank = len(shape_of(x))
    if isinstance(pad_width, int):
        pairs = [(pad_width, pad_width)] * rank
    elif builtins.all(isinstance(w, int | Expr) for w in pad_width) and len(pad_width) == 2:
        pairs = [tuple(pad_width)] * rank
    else:
        pairs = [tuple(w) for w in pad_width]
    return movement.pad(x, value, lo=[lo for lo, _ in pairs], hi=[hi for _, hi in pairs], mode=mode)


def diag(x: Any, k: int = 0) -> Any:
    """A diagonal of each matrix, or of a vector the matrix that has it on a diagonal."""
    return rearrange.diag(x, offset=k) if len(shape_of(x)) == 1 else rearrange.diagonal(x, offset=k)


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

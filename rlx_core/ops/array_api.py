"""The functions users call for shapes, slices, reductions and creation, named and called as the Python Array API says.

Each is a thin front for an op or a composition of a few; the ops have the attributes, the rules and the meaning. Operands are
values, arrays or numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape, normalize_axes, normalize_axis
from rlx_core.ops import reduction, structural
from rlx_core.ops.getitem import getitem
from rlx_core.ops.operators import install

Axis = int | Sequence[int] | None
_dtype = dtype


def shape_of(x: Any) -> Shape:
    """The dims of a value, an array or a number."""
    return x.shape if isinstance(x, Value) else as_array(x).shape


def _axes(x: Any, axis: Axis) -> tuple[int, ...]:
    rank = len(shape_of(x))
    if axis is None:
        return tuple(range(rank))
    return normalize_axes((axis,) if isinstance(axis, int) else axis, rank)


def astype(x: Any, dtype: DType | str) -> Any:
    """`x` in another dtype; the same value where it has it already."""
    target = _dtype(dtype)
    return x if isinstance(x, Value) and x.dtype is target else structural.cast(x, to=target)


# ------------------------------------------------------------------------------------------- reductions


def sum(x: Any, axis: Axis = None, dtype: DType | str | None = None, keepdims: bool = False) -> Any:
    """The sum over `axis`, held in `dtype` where one is given; bool counts in i64, other dtypes stay."""
    return structural.sum_axes(x if dtype is None else astype(x, dtype), axes=_axes(x, axis), keep_dim=keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean over `axis`; integers are averaged in f32, 64-bit ones in f64."""
    return reduction.mean_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element over `axis`."""
    return reduction.max_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element over `axis`."""
    return reduction.min_axes(x, axes=_axes(x, axis), keep_dim=keepdims)


# -------------------------------------------------------------------------------------- shape and order


def reshape(x: Any, shape: Sequence[Dim] | Dim) -> Any:
    """The same elements in row-major order with other dims, one of which may be -1."""
    return structural.reshape(x, new_shape=(shape,) if isinstance(shape, int | Expr) else tuple(shape))


def permute_dims(x: Any, axes: Sequence[int]) -> Any:
    """Axis `i` of the result is axis `axes[i]` of `x`."""
    rank = len(shape_of(x))
    return structural.transpose(x, perm=tuple(normalize_axis(a, rank) for a in axes))


def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    rank = len(shape_of(x))
    if rank < 2:
        raise ShapeError(f"matrix_transpose: x must have 2 or more axes, not {rank}")
    return structural.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def broadcast_to(x: Any, shape: Sequence[Dim]) -> Any:
    """`x` repeated to `shape`."""
    return structural.expand(x, target=tuple(shape))


def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Any:
    """`x` with axes of size 1 at the positions `axis` of the result."""
    shape = list(shape_of(x))
    new = (axis,) if isinstance(axis, int) else tuple(axis)
    for place in normalize_axes(new, len(shape) + len(new)):
        shape.insert(place, 1)
    return structural.reshape(x, new_shape=tuple(shape))


def squeeze(x: Any, axis: int | Sequence[int]) -> Any:
    """`x` without the listed axes, which must have size 1."""
    shape = shape_of(x)
    dropped = normalize_axes((axis,) if isinstance(axis, int) else axis, len(shape))
    for place in dropped:
        if shape[place] != 1:
            raise ShapeError(f"squeeze: axis {place} has {shape[place]} elements, not 1")
    return structural.reshape(x, new_shape=tuple(d for i, d in enumerate(shape) if i not in dropped))


install(
    getitem=getitem,
    max=max,
    mean=mean,
    min=min,
    permute_dims=permute_dims,
    reshape=reshape,
    sum=sum,
)

"""Reads and writes at integer indices, with the operand order of ONNX and JAX: the array, the indices, the updates.

The ops that implement them (`rlx_core.ops.indexing`, `scatter`, `gather_nd`, `along_axis`) keep their operand order and
attribute names, which are part of saved graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import DtypeError
from rlx_core.hints.keywords import CHANGED_ORDER, checked_call
from rlx_core.ops import along_axis, indexing
from rlx_core.ops import gather_nd as nd
from rlx_core.ops import scatter as _scatter
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.indexing import OutOfBounds
from rlx_core.ops.scatter import ScatterMode

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def gather(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int = 0,
    batch_dims: int = 0,
    out_of_bounds: OutOfBounds = "error",
    fill_value: complex = 0,
    *,
    name: str | None = None,
) -> Array:
    """Elements of one axis, selected by indices: `y[b.., o.., i.., n..] = x[b.., o.., indices[b.., i..], n..]`.

    Args:
        x: `[b.., o.., n, ..]`.
        indices: Integers `[b.., i..]`, from 0; `rlx.take` counts negative ones from the end.
        axis: The axis that is indexed.
        batch_dims: The number of leading axes `b..` that both operands share.
        out_of_bounds: For an index outside the axis: "error", "clip" (reads the first or last element) or "fill".
        fill_value: The element read by "fill".
        name: A name for the node.

    Raises:
        AxisError, ShapeError, DtypeError: The axis, the batch axes or the dtype of the indices do not fit.
        IndexRangeError (at run time): An index is outside the axis and `out_of_bounds` is "error".

    >>> gather([1.0, 2.0, 3.0], [2, 5], out_of_bounds="fill", fill_value=-1.0).tolist()
    [3.0, -1.0]
    """
    oob = indexing.checked_policy("gather", out_of_bounds)
    return indexing.gather(x, indices, axis=axis, batch_dims=batch_dims, oob=oob, fill=fill_value, name=name)


@checked_call
def gather_nd(
    x: ArrayLike,
    indices: ArrayLike,
    batch_dims: int = 0,
    out_of_bounds: OutOfBounds = "error",
    *,
    name: str | None = None,
) -> Array:
    """Elements, or slices, selected by index tuples: `y[b.., i.., ..] = x[b.., *indices[b.., i.., :], ..]`.

    Args:
        x: `[b.., n_1, .., n_r, ..]`.
        indices: Integers `[b.., i.., r]`.
        batch_dims: The number of leading axes `b..` that both operands share.
        out_of_bounds: For a tuple with an index outside its axis: "error", "clip" or "fill", which reads 0.
        name: A name for the node.
    """
    return nd.gather_nd(
        x, indices, batch_dims=batch_dims, oob=indexing.checked_policy("gather_nd", out_of_bounds), name=name
    )


@checked_call
def scatter(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    mode: ScatterMode = "set",
    axis: int = 0,
    batch_dims: int = 0,
    out_of_bounds: OutOfBounds = "error",
    *,
    name: str | None = None,
) -> Array:
    """`x` with updates written along one axis: `x[b.., o.., indices[b.., i..], n..] = updates[b.., o.., i.., n..]`.

    Args:
        x: `[b.., o.., n, ..]`.
        indices: Integers `[b.., i..]`.
        updates: `[b.., o.., i.., ..]`.
        mode: "set" (the last update at an index stays), "add", "mul", "max" or "min".
        axis: The axis that is indexed.
        batch_dims: The number of leading axes `b..` that all operands share.
        out_of_bounds: For an index outside the axis: "error", "clip" or "fill", which writes nothing.
        name: A name for the node.

    >>> scatter([1.0, 2.0, 3.0], [0, 2], [10.0, 30.0]).tolist()
    [10.0, 2.0, 30.0]
    """
    return _scattered("scatter", x, indices, updates, mode, axis, batch_dims, out_of_bounds, name)


@checked_call
def scatter_add(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    axis: int = 0,
    batch_dims: int = 0,
    out_of_bounds: OutOfBounds = "error",
    *,
    name: str | None = None,
) -> Array:
    """`x` with updates added along one axis: `scatter` in mode "add". Duplicate indices accumulate, in index order.

    Sums into zeros are `rlx.segment_sum(data, segment_ids, num_segments)`.

    >>> scatter_add([1.0, 2.0], [1, 1], [10.0, 20.0]).tolist()
    [1.0, 32.0]
    """
    return _scattered("scatter_add", x, indices, updates, "add", axis, batch_dims, out_of_bounds, name)


def _scattered(
    what: str,
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    mode: ScatterMode,
    axis: int,
    batch_dims: int,
    out_of_bounds: OutOfBounds,
    name: str | None,
) -> Any:
    oob = indexing.checked_policy(what, out_of_bounds)
    _expect_indices(what, indices)
    return _scatter.scatter(x, updates, indices, mode=mode, axis=axis, batch_dims=batch_dims, oob=oob, name=name)


@checked_call
def scatter_nd(
    x: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    mode: ScatterMode = "set",
    batch_dims: int = 0,
    out_of_bounds: OutOfBounds = "error",
    *,
    name: str | None = None,
) -> Array:
    """`x` with updates written at index tuples: `x[b.., *indices[b.., i.., :], ..] = updates[b.., i.., ..]`.

    Args:
        x: `[b.., n_1, .., n_r, ..]`.
        indices: Integers `[b.., i.., r]`.
        updates: `[b.., i.., ..]`.
        mode: "set" (the last update at a tuple stays), "add", "mul", "max" or "min".
        batch_dims: The number of leading axes `b..` that all operands share.
        out_of_bounds: For a tuple with an index outside its axis: "error", "clip" or "fill", which writes nothing.
        name: A name for the node.
    """
    oob = indexing.checked_policy("scatter_nd", out_of_bounds)
    _expect_indices("scatter_nd", indices)
    return nd.scatter_nd(x, indices, updates, mode=mode, batch_dims=batch_dims, oob=oob, name=name)


@checked_call
def put_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int,
    mode: ScatterMode = "set",
    out_of_bounds: OutOfBounds = "error",
    *,
    name: str | None = None,
) -> Array:
    """`x` with one value written at each index of an axis: `x[.., indices[.., i, ..], ..] = values[.., i, ..]`.

    Args:
        x: `[.., n, ..]`.
        indices: Integers `[.., m, ..]`.
        values: `[.., m, ..]`.
        axis: The axis that is indexed.
        mode: "set" (the last value at an index stays), "add", "mul", "max" or "min".
        out_of_bounds: For an index outside the axis: "error", "clip" or "fill", which writes nothing.
        name: A name for the node.
    """
    oob = indexing.checked_policy("put_along_axis", out_of_bounds)
    _expect_indices("put_along_axis", indices)
    return along_axis.put_along_axis(x, indices, values, axis=axis, mode=mode, oob=oob, name=name)


def _expect_indices(what: str, indices: Any) -> None:
    """Refuse indices that are not integers; updates in their place suggest the operand order of an earlier version.

    Raises:
        DtypeError: The indices are not integers.
    """
    dtype = dtype_of(indices)
    if not dtype.is_integer:
        raise DtypeError(f"{what}: indices must be integers, not {dtype}", hint=CHANGED_ORDER.get(what))

"""`x[key]`: NumPy's basic indexing and indexing with integer arrays, as slices and one gather.

Integers, slices, `...` and `None` become `Narrow`, `Flip` and `Reshape`. Integer arrays are broadcast together and read with
one `Gather`; the position of their axes follows NumPy: in place if they are adjacent, in front otherwise. Arrays that only
enumerate the rows, as in `x[arange(n), labels]`, become a batch axis.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field

from rlx_core.errors import DtypeError, IndexRangeError, ShapeError
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import unwrapped
from rlx_core.ir.dims import Dim, Expr, floor_quotient, holds, product, require, smaller
from rlx_core.ir.dtypes import DType, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.types import broadcast_shapes, same_dim
from rlx_core.ops.conversion import Cast, cast
from rlx_core.ops.creation import Iota, dim_value
from rlx_core.ops.gather_nd import linear_index
from rlx_core.ops.indexing import gather
from rlx_core.ops.movement import flip, narrow
from rlx_core.ops.selection import where
from rlx_core.ops.structural import Reshape, expand, reshape, transpose
from rlx_core.system.records import define, frozen


@frozen(eq=False)
class _Positions:
    """The positions where a known boolean array is true along one of its axes, and the size that this axis must have."""

    array: np.ndarray
    size: int


@define
class _KeyPlan:
    """The state while a key is processed from left to right; mutable."""

    x: Value
    axis: int = 0
    shape: list[Dim] = field(factory=list)
    arrays: list[tuple[int, Any]] = field(factory=list)
    selectors: list[int] = field(factory=list)
    first_place: int | None = None


def getitem(x: Value, key: Any) -> Any:
    """`x[key]` with NumPy's semantics, for keys of integers, slices, `...`, `None` and integer arrays or values.

    Negative positions count from the end. A boolean array selects the elements where it is true: a known one (a NumPy array)
    works, a computed one has no static size and is refused.

    Along an axis of unknown size `n` the result's size is an expression: `x[:4]` has `min(4, n)` elements, `x[::2]` has `(n +
    1)//(2)`. A slice of one element has exactly one, and bounds that are sizes themselves are within the axis, in order:
    conditions that cannot be proved become guards, and running the program with a size that violates one is a GuardError.

    Raises:
        IndexRangeError: A known position is outside its axis, or there are more indices than axes.
        ShapeError: The step of a slice is 0.
        DtypeError: An index is neither an integer nor a known boolean array.
    """
    entries = _entries(key, x.ndim)
    plan = _KeyPlan(x)
    for position, entry in enumerate(entries):
        _read(plan, position, entry)
    reshaped = plan.x if plan.x.shape == tuple(plan.shape) else reshape(plan.x, tuple(plan.shape))
    if not plan.arrays:
        return reshaped
    return _gather_arrays(reshaped, plan)


def _entries(key: Any, rank: int) -> list[Any]:
    """Return the key with `...` expanded: one entry per axis and `None` for each new one."""
    entries = list(key) if isinstance(key, tuple) else [key]
    flat: list[Any] = []
    for entry in entries:
        flat += _positions_of(entry) if _is_mask(entry) else [entry]
    used = sum(entry is not None and entry is not Ellipsis for entry in flat)
    if used > rank:
        raise IndexRangeError(f"getitem: {used} indices for {rank} axes")
    dots = [i for i, entry in enumerate(flat) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError("getitem: `...` may stand once, not twice")
    position = dots[0] if dots else len(flat)
    return [*flat[:position], *[slice(None)] * (rank - used), *flat[position + 1 :]]


def _is_mask(entry: Any) -> bool:
    entry = unwrapped(entry)
    if isinstance(entry, Value):
        if entry.dtype.kind == "bool":
            raise DtypeError(
                "getitem: how many elements a computed bool selects is only known when the program runs",
                hint="use rlx.where, or multiply by the mask",
            )
        return False
    return isinstance(entry, bool | np.bool_) or (
        isinstance(entry, list | np.ndarray) and np.asarray(entry).dtype == np.bool_
    )


def _positions_of(mask: Any) -> Sequence[Any]:
    array = np.asarray(mask)
    if array.ndim == 0:
        raise DtypeError("getitem: a single bool is not an index", hint="use 0 or 1, or None for a new axis")
    return [_Positions(p, n) for p, n in zip(np.nonzero(array), array.shape, strict=True)]


def _read(plan: _KeyPlan, position: int, entry: Any) -> None:
    if entry is None:
        plan.shape.append(1)
        return
    size = plan.x.shape[plan.axis]
    if isinstance(entry, slice):
        plan.x = _slice(plan.x, plan.axis, entry)
        plan.shape.append(plan.x.shape[plan.axis])
        plan.axis += 1
        return
    if plan.first_place is None:
        plan.first_place = len(plan.shape)
    plan.selectors.append(position)
    if _is_integer(entry):
        place = entry if isinstance(entry, Expr) else operator.index(entry)
        plan.x = narrow(plan.x, axis=plan.axis, start=_place_from_front(place, size), length=1)
        plan.axis += 1
        return
    plan.arrays.append((len(plan.shape), from_front(entry, size)))
    plan.shape.append(size)
    plan.axis += 1


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int | np.integer | Expr) and not isinstance(entry, bool)


def _place_from_front(index: Dim, size: Dim) -> Dim:
    if isinstance(index, Expr):
        return size + index if _is_below_zero(index) else index
    if isinstance(size, int) and not -size <= index < size:
        raise IndexRangeError(f"getitem: index {index} is outside an axis of {size} elements")
    return index if index >= 0 else size + index


def _is_below_zero(position: Expr) -> bool:
    """Return whether a position counts from the end, like `-n`; n must not be 0 then, because -0 counts from the front."""
    return holds(">=", 0, position) is True and require(">", 0, position)


def from_front(entry: Any, size: Dim) -> Any:
    """Return an index array with every position counted from the front."""
    if isinstance(entry, _Positions):
        if not same_dim(size, entry.size):
            raise IndexRangeError(f"getitem: a boolean index has {entry.size} elements, its axis {size}")
        return entry.array
    if isinstance(entry, Value):
        if not entry.dtype.is_integer:
            raise DtypeError(f"getitem: an index must be an integer, not {entry.type}")
        if entry.dtype.kind == "uint" or _counted(entry) is not None:
            return entry
        places, length = in_dtype_of_size(entry, size)
        return where(places < 0, places + length, places)
    array = as_array(entry)
    if array.size == 0 and isinstance(entry, list):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DtypeError(f"getitem: an index must be an integer, not {array.dtype}")
    array = array.astype(np.int64)
    if isinstance(size, int):
        wrong = array[(array < -size) | (array >= size)]
        if wrong.size:
            raise IndexRangeError(f"getitem: index {wrong.flat[0]} is outside an axis of {size} elements")
        return np.where(array < 0, array + size, array)
    return array if (array >= 0).all() else where(array < 0, array + dim_value(size=size), array)


def _slice(x: Value, axis: int, entry: slice) -> Value:
    size = x.shape[axis]
    step = 1 if entry.step is None else operator.index(entry.step)
    if step == 0:
        raise ShapeError("getitem: the step of a slice cannot be 0")
    if isinstance(size, int) and not isinstance(entry.start, Expr) and not isinstance(entry.stop, Expr):
        start, stop, step = entry.indices(size)
        taken = range(start, stop, step)
        if len(taken) == size and step == 1:
            return x
        lowest = min(taken[0], taken[-1]) if taken else 0
        part = narrow(x, axis=axis, start=lowest, length=len(taken), step=abs(step))
        return part if step > 0 else flip(part, axes=(axis,))
    if step < 0:
        # Position i from the front is -1 - i from the back, and that is ~i.
        ends = (None if bound is None else -1 - _integer(bound) for bound in (entry.start, entry.stop))
        x, entry, step = flip(x, axes=(axis,)), slice(*ends), -step
    left, right = _Bound.of(entry.start, 0, size), _Bound.of(entry.stop, size, size)
    first, length = _taken(left, right, size)
    if (first, length, step) == (0, size, 1):
        return x
    steps = floor_quotient(length + step - 1, step)
    return narrow(x, axis=axis, start=first, length=steps, step=step)


def _integer(bound: Any) -> Dim:
    return bound if isinstance(bound, Expr) else operator.index(bound)


@frozen
class _Bound:
    """A bound of a slice over an unknown size.

    Attributes:
        place: Its position in the axis.
        distance: Its distance from an end of the axis as written; `None` for a size, which is not clamped.
        is_front: Whether that end is the front.
    """

    place: Dim
    distance: int | None
    is_front: bool = True

    @classmethod
    def of(cls, bound: Any, default: Dim, size: Dim) -> _Bound:
        if bound is None:
            return cls(default, 0, is_front=default == 0)
        if isinstance(bound, Expr):
            return cls(size + bound if _is_below_zero(bound) else bound, None)
        position = operator.index(bound)
        if position >= 0:
            return cls(smaller(position, size), position)
        return cls(size - smaller(-position, size), -position, is_front=False)


def _taken(start: _Bound, end: _Bound, size: Dim) -> tuple[Dim, Dim]:
    """Return the first element of a slice of an axis of unknown size, and its length before the step is applied.

    Bounds that are numbers are clamped to the axis, as in NumPy. Two cases are not: a size as a bound is within the axis, and a
    single element exists, both under `Narrow`'s guard. Whether a size is 1 must be known, because 1 broadcasts.
    """
    if start.distance is None or end.distance is None:
        return start.place, end.place - start.place
    if start.is_front == end.is_front:
        count = end.distance - start.distance if start.is_front else start.distance - end.distance
        if count <= 0:
            return 0, 0
        if count == 1:
            return start.distance if start.is_front else size - start.distance, 1
        if start.is_front:
            return start.place, smaller(count, size - start.place)
        length = smaller(count, end.place)
        return end.place - length, length
    return start.place, end.place - smaller(start.place, end.place)


def _gather_arrays(x: Value, plan: _KeyPlan) -> Value:
    axes = [axis for axis, _ in plan.arrays]
    shape = broadcast_shapes(*(tuple(a.shape) for _, a in plan.arrays))
    batch = _batch_axes(x, plan, shape)
    if len(axes) == batch + 1:
        place, index = axes[0], plan.arrays[-1][1]
        read = gather(x, _broadcast(index, shape) if batch else index, axis=axes[-1], batch_dims=batch)
    else:
        place = 0
        others = [i for i in range(x.ndim) if i not in axes]
        front = transpose(x, perm=(*axes, *others))
        sizes = front.shape[: len(axes)]
        flat = reshape(front, (product(sizes), *front.shape[len(axes) :]))
        read = gather(flat, linear_index([_broadcast(a, shape) for _, a in plan.arrays], sizes), axis=0)
    are_neighbours = plan.selectors == list(range(plan.selectors[0], plan.selectors[0] + len(plan.selectors)))
    target = plan.first_place if are_neighbours and plan.first_place is not None else 0
    return _move_block(read, place, len(shape), target)


def _batch_axes(x: Value, plan: _KeyPlan, shape: tuple[Dim, ...]) -> int:
    """Return how many of the first index arrays only enumerate the rows along a separate axis, which is then a batch axis."""
    axes, count = [axis for axis, _ in plan.arrays], 0
    while count < min(len(axes) - 1, len(shape)) and axes[count] == count and shape[count] == x.shape[count]:
        counted = _counted(plan.arrays[count][1])
        if counted is None or counted[1] != shape[count] or len(shape) - counted[0] != count:
            break
        count += 1
    return count


def _counted(index: Any) -> tuple[int, Dim] | None:
    """Return (the axis from the end, the size) along which an index array is 0, 1, 2, …, if it has no other axes."""
    moving = [i for i, d in enumerate(index.shape) if d != 1]
    if len(moving) != 1:
        return None
    size, place = index.shape[moving[0]], len(index.shape) - moving[0]
    if not isinstance(index, Value):
        return (place, size) if np.array_equal(np.ravel(index), np.arange(size)) else None
    node = index.node
    while holds_places(node.type.dtype, size):
        if isinstance(node.op, Iota):
            return (place, size) if node.op.shape == (size,) else None
        if not isinstance(node.op, Cast | Reshape) or node.operands[0] is None:
            return None
        node = node.operands[0].node
    return None


def holds_places(dtype: DType, size: Dim) -> bool:
    """Return whether a dtype can represent all positions on an axis."""
    return dtype.is_integer and (dtype.itemsize == 8 or (isinstance(size, int) and size <= np.iinfo(dtype.numpy).max))


def _broadcast(index: Any, shape: tuple[Dim, ...]) -> Any:
    return index if tuple(index.shape) == shape else expand(index, shape)


def _move_block(x: Value, source: int, count: int, target: int) -> Value:
    """Move `count` adjacent axes from `source` so that they start at `target`."""
    if source == target or count == 0:
        return x
    block = list(range(source, source + count))
    others = [i for i in range(x.ndim) if i not in block]
    return transpose(x, perm=(*others[:target], *block, *others[target:]))


def in_dtype_of_size(indices: Value, size: Dim) -> tuple[Value, Any]:
    """Return indices in a dtype that can represent the size of their axis, and the size in that dtype."""
    if not isinstance(size, int):
        return indices, cast(dim_value(size=size), to=indices.dtype)
    return (indices if holds_places(indices.dtype, size) else cast(indices, to=i64)), size

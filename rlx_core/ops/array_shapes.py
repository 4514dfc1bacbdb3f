"""The functions of the Python Array API that rearrange elements: shapes, axes, slices, concatenation, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.array import HostArray, is_array
from rlx_core.ir.dims import Dim, Expr, exact_quotient
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape, as_dim, broadcast_shapes, normalize_axes, normalize_axis
from rlx_core.ops import indexing, movement, rearrange, structural
from rlx_core.ops.arguments import flag, listed, whole
from rlx_core.ops.movement import concat

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

Axis = int | Sequence[int] | None


def shape_of(x: Any) -> Shape:
    """Return the dims of a value, an array or a number."""
    return x.shape if isinstance(x, Value) else as_array(x).shape


def copied(x: Any) -> Any:
    """Return `x` as another value, or another array, which can be assigned to without changing `x`."""
    if not isinstance(x, Value):
        return HostArray(as_array(x).copy())
    reshaped = structural.reshape(x, new_shape=x.shape)
    return reshaped.node.owner.as_copy(reshaped)


def numbers_of(n: Any) -> tuple[Any, ...]:
    """Return one number, or several, as a tuple; the op that takes them checks that they are integers."""
    is_several = isinstance(n, Sequence) or (is_array(n) and n.ndim > 0)
    return tuple(n) if is_several else (n,)


def axes_of(x: Any, axis: Axis) -> tuple[int, ...]:
    """Return the given axes, counted from the front; all of them by default."""
    rank = len(shape_of(x))
    return tuple(range(rank)) if axis is None else normalize_axes(numbers_of(axis), rank)


@checked_call
def reshape(x: ArrayLike, shape: Sequence[Dim] | Dim, *, copy: bool | None = None) -> Array:
    """The same elements in row-major order with other dims, one of which may be -1.

    `copy=True` returns a new array, or a value that may be assigned to; `copy=False` refuses to copy.

    Raises:
        ShapeError: The elements do not fit the dims, or need a copy and `copy=False`.
    """
    y = structural.reshape(x, new_shape=(shape,) if isinstance(shape, int | Expr) else shape)
    copy = None if copy is None else flag("reshape: copy", copy)
    if copy and isinstance(y, Value):
        return y.node.owner.as_copy(y)
    if copy is None or isinstance(y, Value):
        return y
    if copy:
        return y.copy()
    view = as_array(x).reshape(y.shape)
    if view.size and not np.shares_memory(view, as_array(x)):
        raise ShapeError(f"reshape: to {y.shape} makes a copy, and copy=False forbids it")
    return view


@checked_call
def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Array:
    """Axis `i` of the result is axis `axes[i]` of `x`."""
    rank = len(shape_of(x))
    return structural.transpose(x, perm=[normalize_axis(a, rank) for a in numbers_of(axes)])


@checked_call
def matrix_transpose(x: ArrayLike) -> Array:
    """The last two axes exchanged."""
    rank = len(shape_of(x))
    if rank < 2:
        raise ShapeError(f"matrix_transpose: x must have 2 or more axes, not {rank}")
    return structural.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


@checked_call
def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes moved to other positions; the others keep their order."""
    rank = len(shape_of(x))
    origins, targets = ([normalize_axis(a, rank) for a in numbers_of(axes)] for axes in (source, destination))
    normalize_axes(origins, rank), normalize_axes(targets, rank)
    if len(origins) != len(targets):
        raise ShapeError(f"moveaxis: {len(origins)} axes cannot move to {len(targets)} places")
    order = [a for a in range(rank) if a not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return structural.transpose(x, perm=order)


@checked_call
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged."""
    order = list(range(len(shape_of(x))))
    i, j = (normalize_axis(axis, len(order)) for axis in (axis1, axis2))
    order[i], order[j] = j, i
    return structural.transpose(x, perm=order)


@checked_call
def diagonal(x: ArrayLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Array:
    """A diagonal of each matrix in the axes `axis1` and `axis2`: the last two by default, unlike NumPy's first two.

    Shapes:
        x: [.., n, m]    ->    y: [.., d], where y[.., i] = x[.., i, i + offset], or x[.., i - offset, i] below the main one
    """
    rank = len(shape_of(x))
    if normalize_axes((axis1, axis2), rank) != (rank - 2, rank - 1):
        x = moveaxis(x, (axis1, axis2), (-2, -1))
    return rearrange.diagonal(x, offset=offset)


@checked_call
def broadcast_to(x: ArrayLike, shape: Sequence[Dim] | Dim) -> Array:
    """`x` broadcast to `shape`: its sizes, or its single size."""
    return structural.expand(x, target=numbers_of(shape))


@checked_call
def broadcast_arrays(*arrays: ArrayLike) -> list[Array]:
    """The operands broadcast to their common shape."""
    shape = broadcast_shapes(*map(shape_of, arrays))
    return [x if shape_of(x) == shape else broadcast_to(x, shape) for x in arrays]


@checked_call
def expand_dims(x: ArrayLike, axis: int | Sequence[int] = 0) -> Array:
    """`x` with axes of size 1 at the positions `axis` of the result."""
    shape, new = list(shape_of(x)), numbers_of(axis)
    for place in normalize_axes(new, len(shape) + len(new)):
        shape.insert(place, 1)
    return structural.reshape(x, new_shape=shape)


@checked_call
def squeeze(x: ArrayLike, axis: Axis = None) -> Array:
    """`x` without the listed axes, which must have size 1; without a list, all axes known to have size 1."""
    shape = shape_of(x)
    if axis is None:
        return structural.reshape(x, new_shape=[d for d in shape if d != 1])
    dropped = axes_of(x, axis)
    for place in dropped:
        if shape[place] != 1:
            raise ShapeError(f"squeeze: axis {place} has {shape[place]} elements, not 1")
    return structural.reshape(x, new_shape=[d for i, d in enumerate(shape) if i not in dropped])


@checked_call
def stack(arrays: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Tensors of one shape joined along a new axis."""
    tensors = listed("stack: arrays", arrays)
    return concat([expand_dims(x, axis) for x in tensors], axis=_new_axis(tensors, axis))


def _new_axis(arrays: Sequence[Any], axis: int) -> int:
    return normalize_axis(axis, len(shape_of(arrays[0])) + 1) if arrays else 0


@checked_call
def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an axis of known size, each without it."""
    place = normalize_axis(axis, len(shape_of(x)))
    return tuple(squeeze(part, place) for part in split(x, shape_of(x)[place].__index__(), place))


@checked_call
def split(x: ArrayLike, indices_or_sections: int | Sequence[Dim], axis: int = 0) -> list[Array]:
    """An axis split into equal parts, or at the positions listed.

    Raises:
        ShapeError: The parts cannot be equal.
    """
    place = normalize_axis(axis, len(shape_of(x)))
    size = shape_of(x)[place]
    if isinstance(indices_or_sections, int | np.integer):
        parts = whole("split: indices_or_sections", indices_or_sections)
        if parts < 0 or (parts == 0 and size != 0):
            raise ShapeError(f"split: an axis of {size} elements cannot be cut into {parts} parts")
        length = exact_quotient(size, parts) if parts else 0
        cuts: list[Dim] = [length * i for i in range(parts + 1)]
    else:
        cuts = [0, *(as_dim(cut) for cut in listed("split: indices_or_sections", indices_or_sections)), size]
    return [movement.narrow(x, axis=place, start=start, length=end - start) for start, end in pairwise(cuts)]


@checked_call
def flip(x: ArrayLike, axis: Axis = None) -> Array:
    """The elements of the listed axes, or of all, in reverse order."""
    return movement.flip(x, axes=axes_of(x, axis))


@checked_call
def roll(x: ArrayLike, shift: int | Sequence[int], axis: Axis = None) -> Array:
    """Elements shifted along `axis`, wrapping around at the end; without an axis, in row-major order."""
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), shape_of(x))
    rank = len(shape_of(x))
    axes = [normalize_axis(a, rank) for a in numbers_of(axis)]
    shifts = numbers_of(shift)
    return rearrange.roll_axes(x, shift=shifts * len(axes) if len(shifts) == 1 else shifts, axes=axes)


@checked_call
def tile(x: ArrayLike, repetitions: int | Sequence[int]) -> Array:
    """`x` repeated as a whole along its axes."""
    return rearrange.tile(x, repeats=numbers_of(repetitions))


@checked_call
def repeat(x: ArrayLike, repeats: int | Sequence[int] | ArrayLike, axis: int | None = None) -> Array:
    """Each element repeated in place along `axis`, flat without an axis.

    One number, or an array of one, repeats all elements; a longer array has a number for each. In a program the numbers must be
    known.
    """
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    place, counts = normalize_axis(axis, len(shape_of(x))), as_array(repeats)
    if counts.dtype.kind not in "iu":
        raise ConfigError(f"repeat: repeats must be integers, not {repeats!r}")
    if counts.shape in ((), (1,)):
        return rearrange.repeat_each(x, repeats=counts.item(), axis=place)
    size = shape_of(x)[place]
    if counts.shape != (size,) or (counts < 0).any():
        raise ShapeError(
            f"repeat: axis {place} of {size} elements takes {size} numbers of at least 0, not {counts.tolist()}"
        )
    return indexing.gather(x, np.repeat(np.arange(len(counts)), counts), axis=place)


@checked_call
def pad(
    x: ArrayLike,
    pad_width: int | Sequence[ArrayLike],
    mode: movement.PadMode = "constant",
    constant_values: ArrayLike | None = None,
) -> Array:
    """`x` with padding: one number, one pair for all axes, or one pair (before, after) for each; negative ones crop."""
    rank = len(shape_of(x))
    if isinstance(pad_width, int | np.integer | Expr):
        pairs: list[tuple[Any, ...]] = [(pad_width, pad_width)] * rank
    else:
        widths = listed("pad: pad_width", pad_width)
        is_pair = len(widths) == 2 and all(isinstance(w, int | np.integer | Expr) for w in widths)
        pairs = [widths] * rank if is_pair else [listed("pad: a pair of widths", w) for w in widths]
        if any(len(pair) != 2 for pair in pairs):
            raise ConfigError(f"pad: pad_width must be a number, a pair, or a pair for each axis, not {pad_width!r}")
    return movement.pad(x, constant_values, lo=[lo for lo, _ in pairs], hi=[hi for _, hi in pairs], mode=mode)


@checked_call
def diag(x: ArrayLike, k: int = 0) -> Array:
    """A diagonal of each matrix, or for a vector the matrix that has it on a diagonal."""
    return rearrange.diag(x, offset=k) if len(shape_of(x)) == 1 else rearrange.diagonal(x, offset=k)

"""`x[key] = y`: the name `x` stands for a new value from then on, in which the elements at `key` are those of `y`.

Values never change. What was computed from `x` before, and the array that the caller of a traced function holds, keep theirs;
so an argument of the program cannot be assigned to, only a copy of it.
"""

from __future__ import annotations

from typing import Any

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import product
from rlx_core.ir.graph import Value
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.along_axis import put_along_axis
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.creation import iota
from rlx_core.ops.getitem import getitem
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape

__all__ = ["setitem"]


def setitem(x: Value, key: Any, value: Any) -> None:
    """`x[key] = value` for the keys that `x[key]` takes, and for a computed mask over the leading axes.

    The value is cast to the dtype of `x`, and broadcasts over what is selected; under a computed mask, over all of `x`.

    Raises:
        ShapeError: The value does not broadcast so.
        TraceError: `x` is an argument of the program, or belongs to another one.
    """
    new = asarray(value, x.dtype)
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    changed = _masked(x, key, new) if _is_computed_mask(key) else _placed(x, key, new)
    x.node.owner.assign(x, changed)


def _is_computed_mask(key: Any) -> bool:
    return isinstance(key, Value) and key.dtype.kind == "bool"


def _masked(x: Value, mask: Value, new: Value) -> Value:
    if tuple(x.shape[: mask.ndim]) != tuple(mask.shape):
        raise ShapeError(f"setitem: a mask {list(mask.shape)} does not lie over the first axes of {list(x.shape)}")
    over = reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    if new.ndim > x.ndim - mask.ndim:
        raise ShapeError(
            f"setitem: under a computed mask the value has at most {x.ndim - mask.ndim} axes, not {new.ndim}",
            hint="how many elements the mask selects is known when the program runs; rlx.where takes a value for each",
        )
    return where(over, new, x)


def _placed(x: Value, key: Any, new: Value) -> Value:
    count = product(x.shape)
    places = getitem(reshape(iota(axis=0, shape=(count,)), x.shape), key)
    if broadcast_shapes(tuple(places.shape), tuple(new.shape)) != tuple(places.shape):
        raise ShapeError(f"setitem: a value {list(new.shape)} does not fit into {list(places.shape)}")
    if 0 in places.shape:
        return reshape(x, x.shape)
    spread = new if new.shape == places.shape else expand(new, places.shape)
    flat = put_along_axis(reshape(x, (count,)), reshape(places, (-1,)), reshape(spread, (-1,)), axis=0)
    return reshape(flat, x.shape)

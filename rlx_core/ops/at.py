"""Functional updates of elements: `x.at[key].set(y)`, and `x[key] = y`, which rebinds the name of `x` to the result.

Values are immutable. In a loop's body, where a name cannot be assigned to, `at` updates a carry; the planner does the update in
place if it is the last use of the operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import IndexRangeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.array import HostArray, as_index, is_array
from rlx_core.ir.dims import product
from rlx_core.ir.graph import Value, ambient_builder
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.along_axis import PutAlongAxis
from rlx_core.ops.arithmetic import add, divide, maximum, minimum, multiply, pow, subtract
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_shapes import copied
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota, ones_like
from rlx_core.ops.getitem import from_front, getitem
from rlx_core.ops.linalg import operand
from rlx_core.ops.scatter import Scatter, ScatterMode
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.typing import ArrayLike

_JOINS: dict[ScatterMode, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": add,
    "mul": multiply,
    "max": maximum,
    "min": minimum,
}
_IN_NUMPY: dict[ScatterMode, np.ufunc | None] = {
    "set": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@frozen
class _Places:
    """Elements of an array: `x.at[key]`."""

    _x: Any
    _key: Any

    def get(self) -> Any:
        """The elements: `x[key]`."""
        return self._x[self._key]

    def set(self, value: Any) -> Any:
        """`x` with `value` there; of several values for one position the last stays."""
        return self._written(value, "set")

    def add(self, value: Any) -> Any:
        """`x` with `value` added there; several values for one position are all added."""
        return self._written(value, "add")

    def max(self, value: Any) -> Any:
        """`x` with the maximum of its elements and all values for their position."""
        return self._written(value, "max")

    def min(self, value: Any) -> Any:
        """`x` with the minimum of its elements and all values for their position."""
        return self._written(value, "min")

    def subtract(self, value: Any) -> Any:
        """`x` with `value` subtracted there; several values for one position are all subtracted."""
        return self._written(subtract(0, operand(value)), "add")

    def multiply(self, value: Any) -> Any:
        """`x` with its elements there times `value`; several values for one position are all multiplied."""
        return self._written(value, "mul")

    def divide(self, value: Any) -> Any:
        """`x` with its elements there divided by `value`; by the product of several values for one position."""
        return cast(divide(self._x, self._product(value)), to=self._x.dtype)

    def power(self, value: Any) -> Any:
        """`x` with its elements there to the power of `value`; of the product of several values for one position."""
        return cast(pow(self._x, self._product(value)), to=self._x.dtype)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """`x` with `function` applied to its elements there; it must preserve their number."""
        if _is_computed_mask(self._key):
            return written(self._x, self._key, function(self._x), "set")
        return self._written(function(self.get()), "set")

    def _product(self, value: Any) -> Any:
        """Return the product of all values for a position, and 1 elsewhere."""
        return _Places(ones_like(self._x), self._key).multiply(value)

    def _written(self, value: Any, mode: ScatterMode) -> Any:
        return written(self._x, self._key, value, mode)


@frozen
class _At:
    """The type of `x.at`, which is indexed with a key."""

    _x: Any

    def __getitem__(self, key: Any) -> _Places:
        return _Places(self._x, key)


@checked_call
def at(x: ArrayLike) -> _At:
    """`rlx.at(x)[key].set(y)`: another array with other elements at the positions that `x[key]` reads.

    For traced values `x.at` is the same. Instead of `set` there are `add`, `subtract`, `multiply`, `divide`, `power`, `max`,
    `min` and `apply(function)`; `get` reads. Values are cast to the dtype of `x`, and broadcast over the selection; under a
    computed mask over all of `x`.

    Raises:
        ShapeError: A value does not broadcast to that shape.
        IndexRangeError: A known position is outside its axis.
    """
    return _At(operand(x))


def written(x: Any, key: Any, value: Any, mode: ScatterMode) -> Any:
    """Return `x` with values written, added or compared at the positions that `x[key]` reads.

    Raises:
        ShapeError: They do not broadcast over these positions.
    """
    if not isinstance(x, Value):
        if ambient_builder() is None:
            return _in_array(x, key, value, mode)
        x = copied(x)
    new: Any = asarray(value, x.dtype)
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if _is_computed_mask(key):
        return _masked(x, key, new, mode)
    return _rows(x, key, new, mode) if _is_index(key) else _elements(x, key, new, mode)


def _is_computed_mask(key: Any) -> bool:
    return isinstance(key, Value) and key.dtype.kind == "bool"


def _is_index(key: Any) -> bool:
    """Return whether a key selects rows of the first axis by index."""
    return isinstance(key, Value) or (is_array(key) and key.dtype.kind in "iu")


def _masked(x: Value, mask: Value, new: Value, mode: ScatterMode) -> Value:
    if tuple(x.shape[: mask.ndim]) != tuple(mask.shape):
        raise ShapeError(f"setitem: a mask {list(mask.shape)} does not lie over the first axes of {list(x.shape)}")
    over = reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    if new.ndim > x.ndim - mask.ndim and tuple(new.shape) != tuple(x.shape):
        raise ShapeError(
            f"setitem: under a computed mask the value has at most {x.ndim - mask.ndim} axes, not {new.ndim}",
            hint="how many elements the mask selects is known when the program runs; rlx.where takes a value for each",
        )
    result: Value = where(over, _JOINS[mode](x, new), x)
    return result


def _rows(x: Value, index: Any, new: Value, mode: ScatterMode) -> Value:
    places = from_front(index, x.shape[0])
    shape = (*places.shape, *x.shape[1:])
    _expect_fits(new, shape)
    written: Value = Scatter(mode)(x, _spread(new, shape), places)
    return written


def _elements(x: Value, key: Any, new: Value, mode: ScatterMode) -> Value:
    count = product(x.shape)
    places = getitem(reshape(iota(axis=0, shape=(count,)), x.shape), key)
    _expect_fits(new, tuple(places.shape))
    if 0 in places.shape:
        return reshape(x, x.shape)
    line = [reshape(v, (-1,)) for v in (places, _spread(new, places.shape))]
    return reshape(PutAlongAxis(0, mode)(reshape(x, (count,)), *line), x.shape)


def _expect_fits(new: Value, shape: tuple[Any, ...]) -> None:
    if broadcast_shapes(shape, tuple(new.shape)) != shape:
        raise ShapeError(f"setitem: a value {list(new.shape)} does not fit into {list(shape)}")


def _spread(new: Value, shape: tuple[Any, ...]) -> Value:
    return new if tuple(new.shape) == tuple(shape) else expand(new, shape)


def _in_array(x: np.ndarray, key: Any, value: Any, mode: ScatterMode) -> HostArray:
    y, key = np.array(x), as_index(key)
    new = np.asarray(asarray(value, y.dtype.name))
    try:
        if (joined := _IN_NUMPY[mode]) is None:
            y[key] = new
        else:
            joined.at(y, key, new)
    except IndexError as error:
        raise IndexRangeError(f"setitem: {error}") from None
    except ValueError as error:
        raise ShapeError(f"setitem: {error}") from None
    return HostArray(y)

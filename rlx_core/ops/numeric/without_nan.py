"""Reductions that ignore NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.hints.keywords import checked_call
from rlx_core.ops.activation import sqrt
from rlx_core.ops.arithmetic import divide, multiply, square, subtract
from rlx_core.ops.array_elementwise import conj, dtype_of, real
from rlx_core.ops.array_search import argmax, argmin
from rlx_core.ops.array_shapes import Axis
from rlx_core.ops.array_statistics import all, max, min, prod, sum
from rlx_core.ops.comparison import isnan, logical_not
from rlx_core.ops.conversion import cast
from rlx_core.ops.numeric.elementwise import floating
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def nansum(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum over `axis` of the elements that are not NaN; integers and bools are summed as in `sum`."""
    return sum(_filled(x, 0), axis=axis, keepdims=keepdims)


@checked_call
def nanprod(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The product over `axis` of the elements that are not NaN."""
    return prod(_filled(x, 1), axis=axis, keepdims=keepdims)


@checked_call
def nanmean(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean over `axis` of the elements that are not NaN; NaN if there are none."""
    x = floating(x)
    return divide(nansum(x, axis, keepdims), _counted(x, axis, keepdims))


@checked_call
def nanvar(x: ArrayLike, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance over `axis` of the elements that are not NaN, in two passes, divided by their count - correction."""
    x = floating(x)
    # 0 where x is NaN, before the square: its derivative would be 0 times NaN.
    deviation = where(isnan(x), 0, subtract(x, nanmean(x, axis, keepdims=True)))
    squares = real(multiply(deviation, conj(deviation))) if dtype_of(x).is_complex else square(deviation)
    return divide(sum(squares, axis=axis, keepdims=keepdims), subtract(_counted(x, axis, keepdims), correction))


@checked_call
def nanstd(x: ArrayLike, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The root of `nanvar`."""
    return sqrt(nanvar(x, axis, correction, keepdims))


@checked_call
def nanmax(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element over `axis` that is not NaN; NaN if there is none."""
    return _or_nan(max(_filled(x, -np.inf), axis=axis, keepdims=keepdims), x, axis, keepdims)


@checked_call
def nanmin(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis` that is not NaN; NaN if there is none."""
    return _or_nan(min(_filled(x, np.inf), axis=axis, keepdims=keepdims), x, axis, keepdims)


@checked_call
def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first largest element of `axis` that is not NaN; 0 if there is none."""
    return argmax(_filled(x, -np.inf), axis=axis, keepdims=keepdims)


@checked_call
def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest element of `axis` that is not NaN; 0 if there is none."""
    return argmin(_filled(x, np.inf), axis=axis, keepdims=keepdims)


def _filled(x: Any, number: float) -> Any:
    return where(isnan(x), number, x) if _has_nan(x) else x


def _counted(x: Any, axis: Axis, keepdims: bool) -> Any:
    """Return the number of elements that are not NaN, as real numbers of the width of `x`, which are floats or complex."""
    return sum(cast(logical_not(isnan(x)), to=dtype_of(x).component), axis=axis, keepdims=keepdims)


def _or_nan(y: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return where(all(isnan(x), axis=axis, keepdims=keepdims), np.nan, y) if _has_nan(x) else y


def _has_nan(x: Any) -> bool:
    """Return whether the dtype of `x` has a NaN."""
    return dtype_of(x).is_float or dtype_of(x).is_complex

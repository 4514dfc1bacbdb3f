"""Medians, quantiles and percentiles: positions in sorted vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import product
from rlx_core.ops.arguments import choice, flag
from rlx_core.ops.arithmetic import add, maximum, multiply, subtract
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import ceil, dtype_of, floor, round
from rlx_core.ops.array_search import sort, take_along_axis
from rlx_core.ops.array_shapes import Axis, axes_of, broadcast_to, expand_dims, moveaxis, reshape, shape_of
from rlx_core.ops.array_statistics import any, sum
from rlx_core.ops.comparison import isnan, logical_not
from rlx_core.ops.conversion import cast
from rlx_core.ops.numeric.elementwise import floating
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

Method = Literal["linear", "lower", "higher", "nearest", "midpoint"]


@checked_call
def quantile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, keepdims: bool = False, *, method: Method = "linear"
) -> Array:
    """The numbers below which a fraction `q` of the elements over `axis` lies; NaN if one of them is NaN.

    Args:
        x: Real numbers; integers become floats as in `mean`.
        q: From 0 to 1: a number, or a vector, which becomes the first axis of the result.
        axis: One, several, or all.
        keepdims: Whether the axes stay, with one element.
        method: Between two elements: "linear" interpolates, "lower", "higher" and "nearest" take one, "midpoint" their mean.

    Raises:
        ConfigError: `q` is outside of 0..1, or the method is unknown.
        ShapeError: `q` has more than one axis, or there is no element.
    """
    return _quantile("quantile", x, q, 1, axis, keepdims, method, passes_nan=False)


@checked_call
def percentile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, keepdims: bool = False, *, method: Method = "linear"
) -> Array:
    """`quantile` with `q` from 0 to 100."""
    return _quantile("percentile", x, q, 100, axis, keepdims, method, passes_nan=False)


@checked_call
def median(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The middle element over `axis`, for an even number the mean of both; NaN if one is NaN."""
    return _quantile("median", x, 0.5, 1, axis, keepdims, "linear", passes_nan=False)


@checked_call
def nanquantile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, keepdims: bool = False, *, method: Method = "linear"
) -> Array:
    """`quantile` of the elements that are not NaN; NaN if all are."""
    return _quantile("nanquantile", x, q, 1, axis, keepdims, method, passes_nan=True)


@checked_call
def nanpercentile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, keepdims: bool = False, *, method: Method = "linear"
) -> Array:
    """`percentile` of the elements that are not NaN; NaN if there are none."""
    return _quantile("nanpercentile", x, q, 100, axis, keepdims, method, passes_nan=True)


@checked_call
def nanmedian(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """`median` of the elements that are not NaN; NaN if there are none."""
    return _quantile("nanmedian", x, 0.5, 1, axis, keepdims, "linear", passes_nan=True)


def _quantile(
    name: str, x: Any, q: Any, full_scale: int, axis: Axis, keepdims: bool, method: str, *, passes_nan: bool
) -> Any:
    choice(f"{name}: method", method, get_args(Method))
    x, rank = floating(x), len(shape_of(x))
    shares = _shares(name, q, full_scale)
    gone = sorted(axes_of(x, axis))
    kept_shape = [d for i, d in enumerate(shape_of(x)) if i not in gone]
    count = product([shape_of(x)[a] for a in gone])
    if count == 0:
        raise ShapeError(f"{name}: x {list(shape_of(x))} has no element over axes {gone}")
    lines = sort(reshape(moveaxis(x, tuple(gone), tuple(range(rank - len(gone), rank))), (*kept_shape, count)))
    nans = isnan(lines)
    numbers = sum(cast(logical_not(nans), to="i64"), axis=-1, keepdims=True) if passes_nan else asarray(count)
    if isinstance(count, int) and not passes_nan and isinstance(shares, np.ndarray):
        positions = shares * (count - 1)  # known now, in f64
    else:
        accumulator = dtype_of(lines).accumulator  # narrow floats cannot represent every position
        positions = multiply(
            cast(asarray(shares), to=accumulator), maximum(cast(subtract(numbers, 1), to=accumulator), 0)
        )
    y = _between(lines, broadcast_to(positions, (*kept_shape, shape_of(positions)[-1])), method)
    y = where(numbers == 0, np.nan, y) if passes_nan else where(any(nans, axis=-1, keepdims=True), np.nan, y)
    y = moveaxis(y, -1, 0)
    if flag(f"{name}: keepdims", keepdims):
        for a in gone:
            y = expand_dims(y, a + 1)
    return reshape(y, shape_of(y)[1:]) if not shape_of(q) else y


def _shares(name: str, q: Any, full_scale: int) -> Any:
    """Return `q` as a vector from 0 to 1."""
    if len(shape_of(q)) > 1:
        raise ShapeError(f"{name}: q is one number or a line of them, not {list(shape_of(q))}")
    if hasattr(q, "node"):
        return reshape(q / full_scale, (-1,))
    array = as_array(q)
    if array.dtype.kind not in "iuf":
        raise DtypeError(f"{name}: q must be real numbers, not {array.dtype}")
    known = array.reshape(-1).astype(np.float64) / full_scale
    if not ((known >= 0) & (known <= 1)).all():
        raise ConfigError(f"{name}: q must lie between 0 and {full_scale}, not {q!r}")
    return known


def _between(lines: Any, positions: Any, method: str) -> Any:
    """Return the elements of sorted vectors at fractional positions."""
    if method == "nearest":
        return take_along_axis(lines, cast(round(positions), to="i64"))
    low, high = (cast(bound(positions), to="i64") for bound in (floor, ceil))
    if method in ("lower", "higher"):
        return take_along_axis(lines, low if method == "lower" else high)
    below, above = take_along_axis(lines, low), take_along_axis(lines, high)
    part = 0.5 if method == "midpoint" else cast(subtract(positions, floor(positions)), to=lines.dtype)
    # Where both are equal, possibly infinite, no interpolation is needed.
    return where(below == above, below, add(below, multiply(part, subtract(above, below))))

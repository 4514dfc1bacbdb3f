"""Order: sorting, the largest, and where values belong in a sorted sequence."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.ir.dims import Dim, holds
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import is_float
from rlx_torch.aten.table import aten, rows


@aten("sort")
def sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    if not x.ndim:
        return x, rlx.zeros((), dtype=rlx.i64)
    numbers = convert(x, rlx.u8) if x.dtype == rlx.bool_ else x
    places = convert(rlx.argsort(numbers, axis=dim, descending=descending, stable=True), rlx.i64)
    return rlx.take_along_axis(x, places, axis=dim), places


@aten("topk")
def topk(x: Any, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.ndim:
        return x, rlx.zeros((), dtype=rlx.i64)
    _, places = rlx.top_k(x, k, axis=dim, largest=largest)
    places = convert(places, rlx.i64)
    return rlx.take_along_axis(x, places, axis=dim), places


@aten("kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, places = sort(x, dim)
    if not x.ndim:
        return values, places
    axis = dim % x.ndim
    one = (*[slice(None)] * axis, slice(k - 1, k))
    result = values[one], places[one]
    return result if keepdim else tuple(rlx.squeeze(each, axis=axis) for each in result)


@aten("median.dim")
def median(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two in the middle; NaN where there is one, which sorts last."""
    if not x.ndim:
        return x, rlx.zeros((), dtype=rlx.i64)
    n = x.shape[dim]
    values, places = kthvalue(x, (n + 1) // 2, dim, True)
    if is_float(x):
        gaps = rlx.isnan(x)
        first = convert(rlx.argmax(convert(gaps, rlx.i32), axis=dim, keepdims=True), rlx.i64)
        places = rlx.where(rlx.any(gaps, axis=dim, keepdims=True), first, places)
        values = rlx.take_along_axis(x, places, axis=dim)
    axis = dim % x.ndim
    return (values, places) if keepdim else (rlx.squeeze(values, axis=axis), rlx.squeeze(places, axis=axis))


@aten("nanmedian.dim")
def nanmedian(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN, which sorting puts last; NaN if all are NaN."""
    if not is_float(x) or not x.ndim:
        return median(x, dim, keepdim)
    axis = dim % x.ndim
    values, places = sort(x, axis)
    count = rlx.sum(convert(rlx.logical_not(rlx.isnan(x)), rlx.i64), axis=axis, keepdims=True)
    middle = rlx.floor_divide(rlx.maximum(count, 1) - 1, 2)
    result = tuple(rlx.take_along_axis(each, middle, axis=axis) for each in (values, places))
    return result if keepdim else tuple(rlx.squeeze(each, axis=axis) for each in result)


@aten("histc")
def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """A histogram in the dtype of `x`; by default the limits are the extremes, extended by 1 if equal."""
    if min == max:
        low, high = rlx.min(x), rlx.max(x)
        separate = convert(low == high, x.dtype)
        shares = rlx.linspace(0, 1, bins + 1, dtype=x.dtype)
        return convert(rlx.histogram(x, (low - separate) * (1 - shares) + (high + separate) * shares)[0], x.dtype)
    return convert(rlx.histogram(x, bins, (min, max))[0], x.dtype)


@aten("searchsorted.Tensor")
def searchsorted(
    sequence: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        sequence = rlx.take_along_axis(sequence, sorter, axis=-1)
    dtype = rlx.i32 if out_int32 else rlx.i64
    after = right or side == "right"
    if sequence.ndim == 1:
        return convert(rlx.searchsorted(sequence, values, side="right" if after else "left"), dtype)
    if not all(holds("==", a, b) for a, b in zip(sequence.shape[:-1], values.shape[:-1], strict=True)):
        refuse("one sorted sequence for each row of the values")
    smaller = (rlx.less_equal if after else rlx.less)(
        rlx.expand_dims(sequence, axis=-2), rlx.expand_dims(values, axis=-1)
    )
    return rlx.sum(convert(smaller, dtype), axis=-1, dtype=dtype)


rows(
    {
        "sort.stable": lambda x, *, stable=None, dim=-1, descending=False: sort(x, dim, descending),
        "argsort argsort.stable": lambda x, dim=-1, descending=False, *, stable=False: sort(x, dim, descending)[1],
        "median": lambda x: median(rlx.reshape(x, (-1,)), 0)[0],
        "nanmedian": lambda x: nanmedian(rlx.reshape(x, (-1,)), 0)[0],
        "bucketize.Tensor": lambda values, boundaries, *, out_int32=False, right=False: searchsorted(
            boundaries, values, out_int32=out_int32, right=right
        ),
    }
)

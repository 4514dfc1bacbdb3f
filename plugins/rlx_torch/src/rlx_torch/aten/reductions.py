"""Sums, products, extremes, moments and norms over axes, running ones, and distances of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import product
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value, floating, is_complex, is_float
from rlx_torch.aten.table import aten, rows

Axes = int | Sequence[int] | None


def axes_of(x: Any, dim: Axes) -> tuple[int, ...]:
    """The axes that torch's `dim` means, from the front; none and an empty list mean all."""
    listed = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    return tuple(axis % x.ndim for axis in listed) if x.ndim else ()


def reduced(function: Any, x: Any, dim: Axes, keepdim: bool, **options: Any) -> Any:
    """A reduction of rlx over torch's axes; of a scalar it takes the one element."""
    if x.ndim == 0:
        return rlx.reshape(function(rlx.reshape(x, (1,)), axis=0, **options), ())
    return function(x, axis=axes_of(x, dim), keepdims=keepdim, **options)


def _sum_dtype(x: Any, dtype: Any) -> Any:
    """The dtype of sums and products: unchanged for floats and complex numbers, i64 for others."""
    return dtype or (x.dtype if x.dtype.kind in ("float", "complex") else rlx.i64)


def _accumulated(function: Any) -> Any:
    def accumulate(x: Any, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        required = _sum_dtype(x, dtype)
        return reduced(function, convert(x, required), dim, keepdim, dtype=required)

    return accumulate


total = _accumulated(rlx.sum)
rows({"sum sum.dim_IntList": total, "prod prod.dim_int": _accumulated(rlx.prod)})


@aten("mean", "mean.dim")
def mean(x: Any, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return reduced(rlx.mean, convert(x, dtype or x.dtype), dim, keepdim)


@aten("var.correction")
def variance(x: Any, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    if is_complex(x):
        parts = (variance(f(x), dim, correction=correction, keepdim=keepdim) for f in (rlx.real, rlx.imag))
        return rlx.add(*parts)
    return reduced(rlx.var, x, dim, keepdim, correction=1.0 if correction is None else float(correction))


rows(
    {
        "var": lambda x, unbiased=True: variance(x, correction=float(unbiased)),
        "var.dim": lambda x, dim, unbiased=True, keepdim=False: variance(
            x, dim, correction=float(unbiased), keepdim=keepdim
        ),
        "std.correction": lambda x, dim=None, **options: rlx.sqrt(variance(x, dim, **options)),
        "amax": lambda x, dim=(), keepdim=False: _extreme(rlx.max, rlx.any, x, dim, keepdim),
        "amin": lambda x, dim=(), keepdim=False: _extreme(rlx.min, rlx.all, x, dim, keepdim),
        "max": lambda x: _extreme(rlx.max, rlx.any, x, None, False),
        "min": lambda x: _extreme(rlx.min, rlx.all, x, None, False),
        "any any.dims any.dim": lambda x, dim=None, keepdim=False: _claim(rlx.any, x, dim, keepdim),
        "all all.dims all.dim": lambda x, dim=None, keepdim=False: _claim(rlx.all, x, dim, keepdim),
        "logsumexp": lambda x, dim, keepdim=False: reduced(rlx.logsumexp, floating(x), dim, keepdim),
        "max.dim": lambda x, dim, keepdim=False: _with_place(rlx.argmax, x, dim, keepdim),
        "min.dim": lambda x, dim, keepdim=False: _with_place(rlx.argmin, x, dim, keepdim),
        "argmax": lambda x, dim=None, keepdim=False: _place(rlx.argmax, x, dim, keepdim),
        "argmin": lambda x, dim=None, keepdim=False: _place(rlx.argmin, x, dim, keepdim),
        "var_mean.correction": lambda x, dim=None, *, correction=None, keepdim=False: (
            variance(x, dim, correction=correction, keepdim=keepdim),
            mean(x, dim, keepdim),
        ),
        "logcumsumexp": lambda x, dim: _running(rlx.cumulative_logsumexp, x, dim),
        "cummax": lambda x, dim: _cumulative_extreme(rlx.cumulative_max, x, dim),
        "cummin": lambda x, dim: _cumulative_extreme(rlx.cumulative_min, x, dim),
    }
)


def _extreme(function: Any, of_bools: Any, x: Any, dim: Axes, keepdim: bool) -> Any:
    return reduced(of_bools if x.dtype == rlx.bool_ else function, x, dim, keepdim)


def _claim(function: Any, x: Any, dim: Axes, keepdim: bool) -> Any:
    """`any` and `all`, which of bytes are bytes."""
    result = reduced(function, convert(x, rlx.bool_), dim, keepdim)
    return convert(result, rlx.u8) if x.dtype == rlx.u8 else result


def _place(function: Any, x: Any, dim: int | None, keepdim: bool) -> Any:
    if x.ndim == 0:
        return rlx.zeros((), dtype=rlx.i64)
    x = rlx.astype(x, rlx.i32) if x.dtype == rlx.bool_ else x
    if dim is None:
        place = function(rlx.reshape(x, (-1,)), axis=0)
        return convert(rlx.reshape(place, (1,) * x.ndim if keepdim else ()), rlx.i64)
    return convert(function(x, axis=dim, keepdims=keepdim), rlx.i64)


def _with_place(function: Any, x: Any, dim: int, keepdim: bool) -> Any:
    """The extreme and where it is; the derivative goes to that element alone."""
    if x.ndim == 0:
        return x, rlx.zeros((), dtype=rlx.i64)
    places = _place(function, x, dim, True)
    values = rlx.take_along_axis(x, places, axis=dim)
    return (values, places) if keepdim else (rlx.squeeze(values, axis=dim), rlx.squeeze(places, axis=dim))


# ---------------------------------------------------------------------------------------------- along one axis


def _running(function: Any, x: Any, dim: int, **options: Any) -> Any:
    if x.ndim == 0:
        return rlx.reshape(function(rlx.reshape(x, (1,)), axis=0, **options), ())
    return function(x, axis=dim, **options)


def _running_total(function: Any) -> Any:
    def run(x: Any, dim: int, *, dtype: Any = None) -> Any:
        required = _sum_dtype(x, dtype)
        return _running(function, convert(x, required), dim, dtype=required)

    return run


rows({"cumsum": _running_total(rlx.cumulative_sum), "cumprod": _running_total(rlx.cumulative_prod)})


def _cumulative_extreme(function: Any, x: Any, dim: int) -> Any:
    """The running extreme, and the last place so far that has it."""
    if x.ndim == 0:
        return x, rlx.zeros((), dtype=rlx.i64)
    numbers = convert(x, rlx.u8) if x.dtype == rlx.bool_ else x
    result = function(numbers, axis=dim)
    axis = dim % x.ndim
    same = rlx.equal(numbers, result)
    if is_float(x):
        same = rlx.logical_or(same, rlx.isnan(numbers))
    places = rlx.where(same, rlx.iota(axis, x.shape, rlx.i64), rlx.zeros(x.shape, dtype=rlx.i64))
    places = rlx.cumulative_max(places, axis=axis)
    return rlx.take_along_axis(x, places, axis=axis), places


# -------------------------------------------------------------------------------------------------------- norms


@aten("linalg_vector_norm")
def vector_norm(x: Any, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = convert(x, dtype) if dtype else floating(x)
    if is_complex(x):
        x = rlx.abs(x)
    size = product([x.shape[axis] for axis in axes_of(x, dim)])
    if isinstance(size, int) and size == 0 and ord in (math.inf, -math.inf):
        refuse("an extreme over at least one element")
    if ord == 0:
        return total(rlx.astype(rlx.not_equal(x, as_value(0, x.dtype)), x.dtype), dim, keepdim)
    if abs(ord) == math.inf:
        return reduced(rlx.max if ord > 0 else rlx.min, rlx.abs(x), dim, keepdim)
    if ord == 1:
        return total(rlx.abs(x), dim, keepdim)
    if ord == 2:
        return rlx.sqrt(total(x * x, dim, keepdim))
    powers = total(rlx.pow(rlx.abs(x), as_value(ord, x.dtype)), dim, keepdim)
    return rlx.pow(powers, as_value(1 / ord, x.dtype))


# ----------------------------------------------------------------------------------- distances of rows


def _norm_of(difference: Any, p: float, axis: int) -> Any:
    size = rlx.abs(difference)
    if p == 0:
        return rlx.sum(convert(rlx.not_equal(difference, as_value(0, difference.dtype)), difference.dtype), axis=axis)
    if p == math.inf:
        return rlx.max(size, axis=axis)
    if p == 1:
        return rlx.sum(size, axis=axis)
    if p == 2:
        return rlx.sqrt(rlx.sum(size * size, axis=axis))
    zero = rlx.equal(size, as_value(0, size.dtype))
    powers = rlx.where(zero, as_value(0, size.dtype), rlx.pow(rlx.where(zero, as_value(1, size.dtype), size), p))
    return rlx.pow(rlx.sum(powers, axis=axis), as_value(1 / p, size.dtype))


@aten("_cdist_forward", "cdist", "_euclidean_dist")
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """The p-norm of the difference of every row of `a` and every row of `b`."""
    return _norm_of(rlx.expand_dims(a, axis=-2) - rlx.expand_dims(b, axis=-3), p, -1)


@aten("_pdist_forward", "pdist")
def pdist(x: Any, p: float = 2.0) -> Any:
    """The p-norm of the difference of every two rows, the first before the second."""
    if not isinstance(x.shape[0], int):
        refuse("cdist, where the number of rows is a symbol")
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm_of(rlx.take(x, first, axis=0) - rlx.take(x, second, axis=0), p, -1)


rows(
    {
        "_cdist_backward": lambda g, a, b, p, found: rlx.vjp(lambda a: cdist(a, b, p), a)[1](g)[0],
        "_pdist_backward": lambda g, x, p, found: rlx.vjp(lambda x: pdist(x, p), x)[1](g)[0],
    }
)

"""Reductions, cumulative functions, and what sorts or searches."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import torch
from jax import lax

import rlx_core as rlx

from ..rows import COMPLEX, DTYPES, FLOATS, INTEGERS, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

BOTH = (*FLOATS, *COMPLEX)


def over_axes(low: float = -2.0, high: float = 2.0, *, is_choice: bool = False) -> Any:
    """An array, and one axis, several, or all of them."""

    def cases(d: Draw) -> Any:
        rank = d.size(1, 3)
        axis = d.choice([None, 0, -1, tuple(range(rank)), (0, -1) if rank > 1 else 0])
        shape = d.shape(rank, 2, 6)
        x = d.apart(shape) if is_choice else d.floats(shape, low, high)
        return (x,), {"axis": axis, "keepdims": d.choice([False, True])}

    return cases


def over_one(low: float = -2.0, high: float = 2.0, *, is_choice: bool = False) -> Any:
    def cases(d: Draw) -> Any:
        rank = d.size(1, 3)
        shape = d.shape(rank, 1, 7)
        return (d.apart(shape) if is_choice else d.floats(shape, low, high),), {"axis": d.size(-rank, rank - 1)}

    return cases


def of_integers(d: Draw) -> Any:
    name = next(key for key, value in DTYPES.items() if value == d.dtype)
    return (d.integers(9, d.shape(2), name),), {}


def torch_over(function: Any) -> Any:
    def reduced(x: Any, *, axis: Any, keepdims: bool) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        return function(x, axes, keepdim=keepdims)

    return reduced


def torch_prod(x: Any, *, axis: int) -> Any:
    return x.prod(axis)


def jax_axis(function: Any) -> Any:
    return lambda x, *, axis: function(x, axis % x.ndim)


def chosen_k(d: Draw) -> Any:
    n = d.size(2, 7)
    return (d.apart((d.size(1, 4), n)),), {"k": d.size(1, n)}


def ordered(d: Draw) -> Any:
    return (d.rounded(sorted_apart(d)), d.floats(d.shape(2), -1.0, 1.0)), {"side": d.choice(["left", "right"])}


def sorted_apart(d: Draw) -> Any:
    return np.sort(np.asarray(d.apart((d.size(1, 9),), 0.25), np.float64))


def torch_spread(function: Any, correction: int) -> Any:
    return torch_over(lambda x, axes, keepdim: function(x, axes, correction=correction, keepdim=keepdim))


SUMS = {"slack": 64, "why": "a sum"}
WITHOUT_DTYPE = {"asks": {"forward", "batch"}}
COUNTED = "a place is i64, as in PyTorch and in JAX with x64"

FAMILY = Family(
    "Reductions, cumulative functions, orders",
    [
        Row("sum", rlx.sum, over_axes(), torch_over(torch.sum), jnp.sum, dtypes=BOTH, **SUMS),
        Row("mean", rlx.mean, over_axes(), torch_over(torch.mean), jnp.mean, dtypes=BOTH, **SUMS),
        Row("max", rlx.max, over_axes(is_choice=True), torch_over(torch.amax), jnp.max),
        Row("min", rlx.min, over_axes(is_choice=True), torch_over(torch.amin), jnp.min),
        Row("prod", rlx.prod, over_one(0.4, 1.6), torch_prod, jnp.prod),
        Row(
            "std",
            rlx.std,
            over_axes(),
            torch_spread(torch.std, 0),
            jnp.std,
            note="`correction` is 1 in PyTorch",
            **SUMS,
        ),
        Row(
            "var",
            rlx.var,
            over_axes(),
            torch_spread(torch.var, 0),
            jnp.var,
            note="`correction` is 1 in PyTorch",
            **SUMS,
        ),
        Row(
            "var(correction=1)",
            lambda x, **a: rlx.var(x, correction=1, **a),
            over_axes(),
            torch_spread(torch.var, 1),
            lambda x, **a: jnp.var(x, ddof=1, **a),
            **SUMS,
        ),
        Row("logsumexp over axes", rlx.logsumexp, over_axes(), torch_over(torch.logsumexp), jsp.logsumexp, **SUMS),
        Row(
            "any",
            lambda x: rlx.any(x > 0, axis=0),
            lambda d: ((d.apart(d.shape(2)),), {}),
            lambda x: (x > 0).any(0),
            lambda x: (x > 0).any(0),
            asks={"dtype", "forward", "batch"},
        ),
        Row(
            "count_nonzero",
            lambda x: rlx.count_nonzero(x > 0),
            lambda d: ((d.apart(d.shape(2)),), {}),
            lambda x: torch.count_nonzero(x > 0),
            lambda x: jnp.count_nonzero(x > 0),
            asks={"dtype", "forward", "batch"},
        ),
        Row(
            "argmax",
            rlx.argmax,
            over_one(is_choice=True),
            lambda x, *, axis: x.argmax(axis),
            jnp.argmax,
            asks={"dtype", "forward", "batch"},
            note=COUNTED,
        ),
        Row(
            "argmin",
            rlx.argmin,
            over_one(is_choice=True),
            lambda x, *, axis: x.argmin(axis),
            jnp.argmin,
            asks={"dtype", "forward", "batch"},
        ),
        Row("sum of integers", rlx.sum, of_integers, torch.sum, jnp.sum, dtypes=INTEGERS, asks={"forward", "batch"}),
        Row(
            "cumulative_sum",
            rlx.cumulative_sum,
            over_one(),
            lambda x, *, axis: x.cumsum(axis),
            jnp.cumsum,
            dtypes=(*WIDE, *COMPLEX),
            **SUMS,
        ),
        Row(
            "cumulative_prod", rlx.cumulative_prod, over_one(0.4, 1.6), lambda x, *, axis: x.cumprod(axis), jnp.cumprod
        ),
        Row(
            "cumulative_max",
            rlx.cumulative_max,
            over_one(is_choice=True),
            lambda x, *, axis: x.cummax(axis).values,
            jax_axis(lax.cummax),
        ),
        Row(
            "cumulative_min",
            rlx.cumulative_min,
            over_one(is_choice=True),
            lambda x, *, axis: x.cummin(axis).values,
            jax_axis(lax.cummin),
        ),
        Row(
            "cumulative_logsumexp",
            rlx.cumulative_logsumexp,
            over_one(),
            lambda x, *, axis: x.logcumsumexp(axis),
            jax_axis(lax.cumlogsumexp),
            dtypes=WIDE,
            inexact={"torch": (1e-11, "PyTorch's derivative goes through a difference of large numbers")},
        ),
        Row("sort", rlx.sort, over_one(is_choice=True), lambda x, *, axis: x.sort(axis).values, jnp.sort),
        Row(
            "sort(descending=True)",
            lambda x, *, axis: rlx.sort(x, axis, descending=True),
            over_one(is_choice=True),
            lambda x, *, axis: x.sort(axis, descending=True).values,
            lambda x, *, axis: jnp.sort(x, axis, descending=True),
        ),
        Row(
            "argsort",
            rlx.argsort,
            over_one(is_choice=True),
            lambda x, *, axis: x.argsort(axis),
            jnp.argsort,
            asks={"dtype", "forward", "batch"},
        ),
        Row(
            "top_k",
            rlx.top_k,
            chosen_k,
            lambda x, *, k: tuple(x.topk(k)),
            lambda x, *, k: lax.top_k(x, k),
            asks={"forward", "gradient", "jvp", "batch"},
            note="places are i64 as in PyTorch; JAX's are i32",
        ),
        Row(
            "searchsorted",
            rlx.searchsorted,
            ordered,
            lambda a, v, *, side: torch.searchsorted(a, v, side=side),
            jnp.searchsorted,
            asks={"forward", "batch"},
        ),
    ],
)

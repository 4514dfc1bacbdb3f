"""Tensors of nothing but sizes and numbers, and random ones, generated from a key that the program's caller passes: they differ
from those of torch's generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

import rlx_core as rlx
from rlx_core import random
from rlx_core.ir.dims import Dim
from rlx_torch.aten.context import fresh_key, refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def _number_dtype(value: Any) -> Any:
    return as_value(value).dtype


@aten("full")
def full(size: Sequence[Dim], value: Any, *, dtype: Any = None) -> Any:
    dtype = dtype or _number_dtype(value)
    return rlx.broadcast_to(as_value(value, dtype), tuple(size))


def _like(value: float) -> Any:
    return lambda x, dtype=None: full(x.shape, value, dtype=dtype or x.dtype)


def _of(value: float) -> Any:
    return lambda size, dtype=None: full(size, value, dtype=dtype or rlx.f32)


def _new(value: float) -> Any:
    return lambda x, size, dtype=None: full(size, value, dtype=dtype or x.dtype)


rows(
    {
        # Nothing that is uninitialised is shown.
        "zeros empty.memory_format empty_permuted _efficientzerotensor": lambda size, *order, dtype=None: full(
            size, 0, dtype=dtype or rlx.f32
        ),
        "empty_strided": lambda size, stride, dtype=None: full(size, 0, dtype=dtype or rlx.f32),
        "ones": _of(1),
        "zeros_like empty_like": _like(0),
        "ones_like": _like(1),
        "full_like": lambda x, value, dtype=None: full(x.shape, value, dtype=dtype or x.dtype),
        "new_zeros new_empty": _new(0),
        "new_ones": _new(1),
        "new_empty_strided": lambda x, size, stride, dtype=None: full(size, 0, dtype=dtype or x.dtype),
        "new_full": lambda x, size, value, dtype=None: full(size, value, dtype=dtype or x.dtype),
        "fill.Scalar fill.Tensor": lambda x, value: full(x.shape, value, dtype=x.dtype),
        "zero": lambda x: full(x.shape, 0, dtype=x.dtype),
        "scalar_tensor": lambda value, dtype=None: as_value(value, dtype or rlx.f32),
        "eye": lambda n, dtype=None: rlx.eye(n, dtype=dtype or rlx.f32),
        "eye.m": lambda n, m, dtype=None: rlx.eye(n, m, dtype=dtype or rlx.f32),
    }
)


@aten("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None) -> Any:
    numbers = (start, end, step)
    dtype = dtype or (rlx.f32 if any(isinstance(n, float) for n in numbers) else rlx.i64)
    if step == 1 and not any(isinstance(n, float) for n in (start, end)):
        return rlx.astype(rlx.arange(start, end), dtype)
    if not all(isinstance(n, int | float) for n in numbers):
        refuse("a step of 1 where the ends are symbols")
    count = max(math.ceil((end - start) / step), 0)
    return rlx.asarray((start + np.arange(count) * step).astype(dtype.numpy))


rows(
    {
        "arange": lambda end, dtype=None: arange(0, end, 1, dtype=dtype),
        "arange.start": lambda start, end, dtype=None: arange(start, end, 1, dtype=dtype),
        "tril_indices": lambda row, col, offset=0, *, dtype=None: rlx.asarray(
            np.stack(np.tril_indices(row, offset, col)).astype((dtype or rlx.i64).numpy)
        ),
        "triu_indices": lambda row, col, offset=0, *, dtype=None: rlx.asarray(
            np.stack(np.triu_indices(row, offset, col)).astype((dtype or rlx.i64).numpy)
        ),
        "prims::iota": lambda length, *, start, step, dtype, requires_grad=False: rlx.astype(
            rlx.arange(length) * step + start, dtype
        ),
        "lift_fresh _lazy_clone": lambda x: x,
    }
)


@aten("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None) -> Any:
    if not all(isinstance(n, int | float) for n in (start, end)):
        refuse("ends that are numbers")
    # Torch counts from both ends, so that the last number is the end itself.
    dtype = dtype or rlx.f32
    wide = np.linspace(float(start), float(end), steps)
    return rlx.asarray(wide.astype(dtype.numpy))


# -------------------------------------------------------------------------------------- random numbers


F = TypeVar("F", bound=Callable[..., Any])


def uniform(shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = None) -> Any:
    return random.uniform(fresh_key(), tuple(shape), dtype or rlx.f32, low, high)


def normal(shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = None) -> Any:
    drawn = random.normal(fresh_key(), tuple(shape), dtype or rlx.f32)
    return drawn * as_value(std, drawn.dtype) + as_value(mean, drawn.dtype)


def integers(low: int, high: int, shape: Any, dtype: Any = None) -> Any:
    return convert(random.randint(fresh_key(), tuple(shape), low, high, rlx.i64), dtype or rlx.i64)


def _drawn(*overloads: str) -> Callable[[F], F]:
    return aten(*overloads, draws=True)


_drawn("rand", "rand.generator")(lambda size, dtype=None: uniform(size, dtype=dtype))
_drawn("randn", "randn.generator")(lambda size, dtype=None: normal(size, dtype=dtype))
_drawn("rand_like", "rand_like.generator")(lambda x, dtype=None: uniform(x.shape, dtype=dtype or x.dtype))
_drawn("randn_like", "randn_like.generator")(lambda x, dtype=None: normal(x.shape, dtype=dtype or x.dtype))
_drawn("randint", "randint.generator")(lambda high, size, dtype=None: integers(0, high, size, dtype))
_drawn("randint.low", "randint.low_generator")(lambda low, high, size, dtype=None: integers(low, high, size, dtype))
_drawn("randint_like")(lambda x, high, dtype=None: integers(0, high, x.shape, dtype or x.dtype))
_drawn("randint_like.low_dtype")(lambda x, low, high, dtype=None: integers(low, high, x.shape, dtype or x.dtype))
_drawn("uniform")(lambda x, low=0.0, high=1.0, generator=None: uniform(x.shape, low, high, x.dtype))
_drawn("normal_functional")(lambda x, mean=0.0, std=1.0, generator=None: normal(x.shape, mean, std, x.dtype))
_drawn("normal.Tensor_float")(lambda mean, std=1.0, generator=None: normal(mean.shape, mean, std, mean.dtype))
_drawn("normal.float_Tensor")(lambda mean, std, generator=None: normal(std.shape, mean, std, std.dtype))
_drawn("normal.float_float")(lambda mean, std, size, dtype=None, generator=None: normal(size, mean, std, dtype))
_drawn("exponential")(lambda x, rate=1.0, generator=None: random.exponential(fresh_key(), x.shape, x.dtype) / rate)
_drawn("bernoulli")(lambda p, generator=None: convert(random.bernoulli(fresh_key(), p, p.shape), p.dtype))
_drawn("bernoulli.p")(lambda x, p=0.5, generator=None: convert(random.bernoulli(fresh_key(), p, x.shape), x.dtype))


@_drawn("normal.Tensor_Tensor")
def normal_tensors(mean: Any, std: Any, generator: Any = None) -> Any:
    mean, std = rlx.broadcast_arrays(mean, std)
    return normal(mean.shape, mean, std, mean.dtype)


@_drawn("randperm", "randperm.generator")
def randperm(n: Any, *, dtype: Any = None) -> Any:
    return convert(random.permutation(fresh_key(), rlx.arange(n)), dtype or rlx.i64)


@_drawn("multinomial")
def multinomial(p: Any, count: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """Classes by weight; without replacement, the largest of logits to which noise was added (Gumbel's trick)."""
    logits = rlx.log(p)
    if replacement:
        shape: Sequence[Any] = (count, *p.shape[:-1])
        drawn = random.categorical(fresh_key(), logits, -1, tuple(shape))
        return convert(rlx.moveaxis(drawn, 0, -1) if p.ndim > 1 else drawn, rlx.i64)
    noisy = logits + random.gumbel(fresh_key(), p.shape, p.dtype)
    return convert(rlx.top_k(noisy, count)[1], rlx.i64)

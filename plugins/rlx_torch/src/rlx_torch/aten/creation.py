"""Tensors of nothing but sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import Dim
from rlx_torch.aten.context import refuse
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

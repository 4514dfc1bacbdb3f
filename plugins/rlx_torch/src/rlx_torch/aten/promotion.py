"""Type promotion by torch's rules: a tensor has priority over a scalar of the same category.

rlx promotes `i64 + f32` to f64 as NumPy does, torch to f32; so handlers cast by these rules, and rlx has nothing left to promote.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dtypes import DType, promote

_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_COMPLEX = {rlx.f16: rlx.c64, rlx.bf16: rlx.c64, rlx.f32: rlx.c64, rlx.f64: rlx.c128}


def is_float(x: Any) -> bool:
    return bool(x.dtype.kind == "float")


def is_complex(x: Any) -> bool:
    return bool(x.dtype.kind == "complex")


def is_integer(x: Any) -> bool:
    """Return whether the elements are integers; bool is not."""
    return x.dtype.kind in ("int", "uint")


def floating(x: Any) -> Any:
    """Return `x`, converted to f32 if it is integer or bool."""
    x = as_value(x)
    return x if _RANK[x.dtype.kind] > 1 else rlx.astype(x, rlx.f32)


def as_value(x: Any, dtype: DType | None = None) -> Any:
    """A value of a value, a number or a size, in a dtype if one is given."""
    if isinstance(x, bool | int | float | complex):
        return rlx.asarray(np.asarray(x).astype((dtype or _of_number(x)).numpy))
    x = x if isinstance(x, rlx.Value) else rlx.asarray(x)
    return x if dtype is None else rlx.astype(x, dtype)


def meeting(*operands: Any) -> DType:
    """The dtype that values, sizes and Python's numbers meet in."""
    tensors = [x.dtype for x in operands if isinstance(x, rlx.Value) and x.ndim]
    scalars = [x.dtype for x in operands if isinstance(x, rlx.Value) and not x.ndim]
    numbers = [_of_number(x) for x in operands if not isinstance(x, rlx.Value)]
    ladders = [reduce(_joined, group) for group in (tensors, scalars, numbers) if group]
    return reduce(_outranked, ladders)


def meet(*operands: Any) -> list[Any]:
    """All operands as values of the dtype that they meet in."""
    dtype = meeting(*operands)
    return [as_value(x, dtype) for x in operands]


def met_floating(*operands: Any) -> list[Any]:
    """All operands in the floating dtype that they meet in; f32 for integers alone."""
    dtype = meeting(*operands)
    dtype = dtype if _RANK[dtype.kind] > 1 else rlx.f32
    return [as_value(x, dtype) for x in operands]


def _of_number(x: Any) -> DType:
    if isinstance(x, bool):
        return rlx.bool_
    if isinstance(x, float):
        return rlx.f32
    return rlx.c64 if isinstance(x, complex) else rlx.i64


def _outranked(higher: DType, lower: DType) -> DType:
    """Return the promotion of a dtype of higher priority and one of lower, which matters only if its category is higher."""
    if _RANK[lower.kind] <= _RANK[higher.kind]:
        return higher
    if lower.kind == "complex" and higher.kind == "float":
        return _COMPLEX[higher]
    return lower


def _joined(a: DType, b: DType) -> DType:
    """The dtype that two of equal say meet in."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda d: _RANK[d.kind])
    if _RANK[low.kind] == _RANK[high.kind]:
        return promote(a, b)
    if high.kind == "complex" and low == rlx.f64:
        return rlx.c128
    return high

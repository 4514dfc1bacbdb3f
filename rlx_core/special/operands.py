"""Operands of the special functions: converted to one real floating dtype and shape, wide enough to compute in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import f32, f64
from rlx_core.nn.floats import narrowed
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_info import result_type
from rlx_core.ops.array_shapes import broadcast_arrays
from rlx_core.ops.comparison import equal
from rlx_core.ops.linalg import operand
from rlx_core.ops.selection import where


def in_wide(what: str, function: Callable[..., Any], *x: Any) -> Any:
    """Apply `function` to real operands, broadcast to one shape and dtype, at least f32; the result has their dtype.

    Raises:
        DtypeError: One of them is complex.
    """
    common = result_type(*x)
    if common.is_complex:
        raise DtypeError(f"{what}: takes real numbers, not {common}")
    if not common.is_float:
        common = f64 if common.itemsize == 8 else f32
    wide = broadcast_arrays(*(narrowed(operand(each), common.accumulator) for each in x))
    return narrowed(function(*wide), common)


def epsilon(x: Any) -> float:
    """Return the distance between 1 and the next number of the dtype of `x`, which is f32 or f64."""
    return 2.0**-52 if dtype_of(x) is f64 else 2.0**-23


def smallest(x: Any) -> float:
    """Return a replacement for a denominator of 0: small, with a finite inverse far from overflow."""
    return 2.0**-1000 if dtype_of(x) is f64 else 2.0**-100


def not_zero(x: Any) -> Any:
    """Return `x`, with `smallest` in place of 0."""
    return where(equal(x, 0), smallest(x), x)

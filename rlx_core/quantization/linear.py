"""Integer codes with a scale and a zero point: `value = (code - zero point) · scale`, as ONNX's QuantizeLinear defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import DtypeError, Fact, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, i8, i16, u8, u16
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ir.types import normalize_axes, same_dim
from rlx_core.ops.linalg import operand

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike, DTypeLike

Axes = int | Sequence[int] | None
"""The axes along which a scale differs: one, several, or none of them."""

CODES = (i8, u8, i16, u16)
"""Dtypes of codes; f32 represents each of their numbers."""


@checked_call
def quantize_linear(
    x: ArrayLike, scale: ArrayLike, zero_point: ArrayLike = 0, *, axis: Axes = None, dtype: DTypeLike = "i8"
) -> Array:
    """The codes of x: `round(x / scale) + zero_point`, halves to the even integer, saturated to the range of the dtype.

    NaN has code 0, as in a cast; so does 0/0, where x and the scale are 0. Integers have no derivative: `fake_quantize` is the
    function for training.

    Args:
        x: Real numbers `[..]`.
        scale: Of one unit of a code, in the units of x: `[]`, or `[n]` along `axis`. Positive.
        zero_point: The code of 0, of the same shape; or one number.
        axis: The axis along which scales differ, or several, for scales `[n, m, ..]`. By default there is one scale.
        dtype: `i8`, `u8`, `i16` or `u16`.

    Raises:
        ShapeError: Scales or zero points have another shape.
        DtypeError: The dtype is another.

    >>> rlx.quantization.quantize_linear(np.float32([0.25, 0.75, 9]), 0.5, 1, dtype="u8").tolist()
    [1, 3, 19]
    """
    data = operand(x)
    axes = axes_of(axis, data.ndim)
    steps = along("quantize_linear: scale", scale, data, axes)
    zero = along("quantize_linear: zero_point", zero_point, data, axes, may_be_one=True)
    return codes_of(rlx.divide(data, steps), zero, expect_codes("quantize_linear: dtype", dtype))


@checked_call
def dequantize_linear(codes: ArrayLike, scale: ArrayLike, zero_point: ArrayLike = 0, *, axis: Axes = None) -> Array:
    """The values of codes: `(codes - zero_point) · scale`, in the dtype of the scale (f32 for a Python number).

    Gradients reach the scale, and the zero point if it is a float.

    Args:
        codes: Integers `[..]`.
        scale: Of one unit of a code: `[]`, or `[n]` along `axis`.
        zero_point: The code of 0, of the same shape; or one number.
        axis: The axis along which scales differ, or several, for scales `[n, m, ..]`. By default there is one scale.

    Raises:
        ShapeError: Scales or zero points have another shape.
        DtypeError: The codes are not integers.

    >>> rlx.quantization.dequantize_linear(np.uint8([1, 3, 19]), 0.5, 1).tolist()
    [0.0, 1.0, 9.0]
    """
    data = operand(codes)
    if not dtype_of(data.dtype).is_integer:
        raise DtypeError("dequantize_linear: codes are integers", Fact("codes", data.dtype))
    axes = axes_of(axis, data.ndim)
    steps = along("dequantize_linear: scale", scale, data, axes)
    result = dtype_of(steps.dtype) if dtype_of(steps.dtype).is_float else rlx.f32
    zero = along("dequantize_linear: zero_point", zero_point, data, axes, may_be_one=True)
    wide = wide_of(result)
    centred = rlx.astype(data, wide) - rlx.astype(zero, wide)
    return rlx.astype(centred * rlx.astype(steps, wide), result)


def wide_of(dtype: DType) -> DType:
    """Return the dtype in which numbers are rounded: f32 instead of the halves and of integers."""
    return dtype if dtype.is_float and dtype.itemsize >= rlx.f32.itemsize else rlx.f32


def codes_of(x: Any, zero_point: Any, dtype: DType) -> Any:
    """Return `round(x) + zero_point` in a dtype of codes, saturated; x is in units of a code."""
    wide = rlx.astype(x, wide_of(dtype_of(x.dtype)))
    return rlx.astype(rlx.round(wide) + rlx.astype(rlx.asarray(zero_point), dtype_of(wide.dtype)), dtype)


def expect_codes(what: str, dtype: DTypeLike) -> DType:
    """Return a dtype of codes.

    Raises:
        DtypeError: It is another one.
    """
    result = dtype_of(dtype)
    if result not in CODES:
        raise DtypeError(f"{what} must be one of {', '.join(map(str, CODES))}, not {result}")
    return result


def axes_of(axis: Axes, rank: int) -> tuple[int, ...]:
    """Return the axes along which scales differ, counted from the front in ascending order; errors as of `normalize_axes`."""
    return normalize_axes(() if axis is None else (axis,) if isinstance(axis, int) else axis, rank)


def along(what: str, parameter: Any, x: Any, axes: Sequence[int], *, may_be_one: bool = False) -> Any:
    """Return scales or zero points `[n, ..]`, one for each index of the axes of x, so that they broadcast to x.

    A Python number has the dtype of x if that is a float, else f32.

    Raises:
        ShapeError: They have another shape, and are not one number where that is allowed.
    """
    of_x = dtype_of(x.dtype)
    is_weak = type(parameter) in (int, float)
    array = operand(np.asarray(parameter, (of_x if of_x.is_float else rlx.f32).numpy) if is_weak else parameter)
    if may_be_one and array.ndim == 0:
        return array
    expected = tuple(x.shape[axis] for axis in axes)
    if len(array.shape) != len(expected) or not all(map(same_dim, array.shape, expected)):
        hint = "`axis` is the axis along which scales differ; without it there is one scale" if array.ndim else ""
        facts = (Fact("expected", list(expected)), Fact("shape", list(array.shape)))
        raise ShapeError(f"{what} must have the dims of the axes {list(axes)}", *facts, hint=hint)
    return rlx.reshape(array, tuple(x.shape[axis] if axis in axes else 1 for axis in range(x.ndim)))

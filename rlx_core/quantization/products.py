"""Products of integer codes, rounded to codes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ir.dtypes import i8, i16, i32, u8
from rlx_core.ops.convolution.arguments import Padding, Steps
from rlx_core.ops.convolution.layers import convolved
from rlx_core.ops.linalg import operand
from rlx_core.quantization.linear import along, codes_of, expect_codes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike, DTypeLike


@checked_call
def quantized_matmul(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    x_zero_point: ArrayLike = 0,
    w_zero_point: ArrayLike = 0,
    out_zero_point: ArrayLike = 0,
    multiplier: ArrayLike,
    dtype: DTypeLike = "i8",
) -> Array:
    """The codes of a product: `round(acc · multiplier) + out_zero_point`, saturated, of
    `acc = bias + Σ (x - x_zero_point)(w - w_zero_point)` in i32.

    The sum is exact modulo 2^32, hence exact for up to 33,000 terms. It has no derivative: see `fake_quantize`.

    Args:
        x: Codes `i8[.., m, k]` or `u8[.., m, k]`.
        w: Codes `[.., k, n]` of either dtype.
        bias: `i32[n]`, in units of the product of the scales of x and w.
        x_zero_point, out_zero_point: One number.
        w_zero_point: One number, or `[n]`.
        multiplier: The scale of x times the scale of w over the scale of the result, `f[]` or `f[n]`.
        dtype: Of the result: `i8`, `u8`, `i16` or `u16`.

    Raises:
        DtypeError: x or w has other elements, or the dtype is another.
        ShapeError: Sizes do not fit.

    >>> x, w = np.int8([[1, 2]]), np.int8([[3], [4]])
    >>> rlx.quantization.quantized_matmul(x, w, multiplier=0.5, out_zero_point=1).tolist()
    [[7]]
    """
    left, right = _codes("quantized_matmul: x", x), _codes("quantized_matmul: w", w)
    sums = integer_matmul(
        left,
        right,
        along("quantized_matmul: x_zero_point", x_zero_point, left, ()),
        _columns("quantized_matmul: w_zero_point", w_zero_point, right),
    )
    if bias is not None:
        sums = sums + rlx.astype(along("quantized_matmul: bias", bias, sums, (sums.ndim - 1,)), i32)
    steps = rlx.astype(_columns("quantized_matmul: multiplier", multiplier, sums), rlx.f32)
    zero = along("quantized_matmul: out_zero_point", out_zero_point, sums, ())
    return codes_of(rlx.astype(sums, rlx.f32) * steps, zero, expect_codes("quantized_matmul: dtype", dtype))


@checked_call
def quantized_conv(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    x_zero_point: ArrayLike = 0,
    w_zero_point: ArrayLike = 0,
    out_zero_point: ArrayLike = 0,
    multiplier: ArrayLike,
    dtype: DTypeLike = "i8",
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Array:
    """The codes of a convolution: `round(acc · multiplier) + out_zero_point`, saturated, where acc is the i32 convolution of
    `x - x_zero_point` by `weight - w_zero_point`, plus the bias. Cells of the padding contribute 0.

    Args:
        x: Codes `i8[n, c, ..]` or `u8[n, c, ..]`, with one to three spatial axes.
        weight: Codes `[m, c/groups, k..]` of either dtype.
        bias: `i32[m]`, in units of the product of the scales of x and of the weight.
        x_zero_point, out_zero_point: One number.
        w_zero_point: One number, or `[m]`.
        multiplier: The scale of x times the scale of the weight over the scale of the result, `f[]` or `f[m]`.
        dtype: Of the result: `i8`, `u8`, `i16` or `u16`.
        stride, padding, dilation, groups: As of `nn.conv`.

    Raises:
        DtypeError: x or the weight has other elements, or the dtype is another.
        ShapeError, ConfigError: As of `nn.conv`.

    >>> x, weight = np.uint8([[[3, 5, 7]]]), np.int8([[[1, 1]]])
    >>> rlx.quantization.quantized_conv(x, weight, x_zero_point=3, multiplier=1.0, padding=((1, 0),)).tolist()
    [[[0, 2, 6]]]
    """
    data, kernel = _codes("quantized_conv: x", x), _codes("quantized_conv: weight", weight)
    zero = along("quantized_conv: x_zero_point", x_zero_point, data, ())
    centred = difference(kernel, along("quantized_conv: w_zero_point", w_zero_point, kernel, (0,), may_be_one=True))
    sums = convolved(difference(data, zero), centred, stride, padding, dilation, groups, acc_dtype=i32)
    if bias is not None:
        sums = sums + rlx.astype(along("quantized_conv: bias", bias, sums, (1,)), i32)
    steps = rlx.astype(along("quantized_conv: multiplier", multiplier, sums, (1,), may_be_one=True), rlx.f32)
    out_zero = along("quantized_conv: out_zero_point", out_zero_point, sums, ())
    return codes_of(rlx.astype(sums, rlx.f32) * steps, out_zero, expect_codes("quantized_conv: dtype", dtype))


def difference(codes: Any, zero_point: Any) -> Any:
    """Return codes less their zero point, in i16."""
    wide = rlx.astype(codes, i16)
    return wide if zero_point is None or _is_zero(zero_point) else wide - rlx.astype(zero_point, i16)


def integer_matmul(x: Any, w: Any, x_zero_point: Any, w_zero_point: Any) -> Any:
    """Return `Σ (x - x_zero_point)(w - w_zero_point)` in i32, exact modulo 2^32.

    The codes themselves are multiplied, as i8, so that the kernel reads bytes; sums of rows and columns account for zero points.

    Args:
        x, w: Codes `i8` or `u8`, matrices or batches of them.
        x_zero_point: `[]`, or `[.., m, 1]`.
        w_zero_point: `[]`, or `[.., 1, n]`.
    """
    (left, p), (right, q) = _signed(x, x_zero_point), _signed(w, w_zero_point)
    sums = rlx.matmul(left, right, acc_dtype=i32)
    columns = None if _is_zero(p) else rlx.sum(less(right, q), axis=-2, keepdims=True, dtype=i32)
    if not _is_zero(q):
        sums = sums - rlx.astype(q, i32) * rlx.sum(left, axis=-1, keepdims=True, dtype=i32)
    return sums if columns is None else sums - rlx.astype(p, i32) * columns


def _signed(codes: Any, zero_point: Any) -> tuple[Any, Any]:
    """Return codes as i8, and the zero point of these; the difference is the same."""
    if dtype_of(codes.dtype) is i8:
        return codes, zero_point
    moved = less(zero_point, 128) if isinstance(zero_point, rlx.Value) else np.asarray(zero_point, np.int32) - 128
    return rlx.astype(rlx.bitwise_xor(codes, np.uint8(128)), i8), moved


def less(x: Any, zero_point: Any) -> Any:
    """Return `x - zero_point` in i32."""
    wide = rlx.astype(x, i32)
    return wide if _is_zero(zero_point) else wide - rlx.astype(zero_point, i32)


def _is_zero(zero_point: Any) -> bool:
    """Return whether a zero point is known to be 0."""
    return not isinstance(zero_point, rlx.Value) and not np.asarray(zero_point).any()


def _codes(what: str, x: Any) -> Any:
    """Return an operand of codes.

    Raises:
        DtypeError: Its elements are no bytes.
    """
    data = operand(x)
    if dtype_of(data.dtype) not in (i8, u8):
        raise DtypeError(f"{what} must have codes in i8 or u8, not {dtype_of(data.dtype)}")
    return data


def _columns(what: str, parameter: Any, x: Any) -> Any:
    """Return one number, or one for each column, so that it broadcasts to x."""
    if x.ndim < 2:
        raise ShapeError(f"{what.partition(':')[0]}: operands have rows and columns, not {x.ndim} axes")
    return along(what, parameter, x, (x.ndim - 1,), may_be_one=True)

"""Numbers with scales and zero points, in plain arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.quantization.products import integer_matmul, less
from rlx_onnx.handlers.conversions import SIGNED, WIDTHS, coded, element_of
from rlx_onnx.handlers.convolution import integer_conv
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import Coded


def _spread(node: OnnxNode, x: Any, scale: Any, axis: int, block: int) -> Any:
    """Return scales or zero points broadcastable to x: one for all, one for each index of an axis, or one for each block."""
    if scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1 and x.ndim != 1):
        return rlx.reshape(scale, ())
    if block:
        result = rlx.repeat(scale, block, axis=axis)
        return result[tuple(slice(0, n) for n in x.shape)]
    if scale.ndim == 1:
        return rlx.reshape(scale, (-1, *(1,) * (x.ndim - axis - 1)))
    if scale.ndim != x.ndim:
        raise FormatError(f"{node}: scales of {scale.ndim} axes for {x.ndim}")
    return scale


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Coded) else x


def _bounds(element: int) -> tuple[int, int]:
    if element in WIDTHS:
        bits = WIDTHS[element]
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if element in SIGNED else (0, (1 << bits) - 1)
    info = np.iinfo(DTYPES[element].numpy)
    return int(info.min), int(info.max)


@handles("QuantizeLinear", takes_coded=True)
def quantize(node: OnnxNode, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero point, clamped to the range of the result's type."""
    element = element_of(zero) if zero is not None else node.element("output_dtype", TensorProto.UINT8)
    return quantized(node, x, scale, zero, element)


def quantized(node: OnnxNode, x: Any, scale: Any, zero: Any, element: int) -> Any:
    """x in an element type, with a scale and a zero point."""
    axis = node.get("axis", 1)
    axis = axis % x.ndim if x.ndim else 0
    block = node.get("block_size", 0)
    precise = node.element("precision") or 0
    dtype = DTYPES[precise] if precise in DTYPES else rlx.f32 if not dtype_of(x.dtype).is_float else dtype_of(x.dtype)
    steps = _spread(node, x, rlx.astype(scale, dtype), axis, block)
    shared = rlx.astype(x, dtype) / steps
    offset = None if zero is None else _spread(node, x, rlx.astype(_plain(zero), rlx.f32), axis, block)
    if element not in WIDTHS and element not in DTYPES:
        return coded(node, rlx.astype(shared, rlx.f32), element, saturate=bool(node.get("saturate", 1)))
    full = rlx.round(rlx.astype(shared, rlx.f32))
    low, high = _bounds(element)
    stored = rlx.clip(full if offset is None else full + offset, low, high)
    if element in WIDTHS:
        return Coded(rlx.astype(stored, rlx.i8 if element in SIGNED else rlx.u8), element)
    return rlx.astype(rlx.astype(stored, rlx.i32), DTYPES[element])


@handles("DequantizeLinear", takes_coded=True, widens=True)
def dequantize(node: OnnxNode, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero point) · scale, in the dtype of the scale."""
    data = _plain(x)
    axis = node.get("axis", 1)
    axis = axis % data.ndim if data.ndim else 0
    block = node.get("block_size", 0)
    required = node.element("output_dtype")
    dtype = DTYPES[required] if required in DTYPES else dtype_of(scale.dtype)
    wide = rlx.astype(data, rlx.f32)
    if zero is not None:
        wide = wide - _spread(node, data, rlx.astype(_plain(zero), rlx.f32), axis, block)
    return rlx.astype(wide * _spread(node, data, rlx.astype(scale, rlx.f32), axis, block), dtype)


@handles("DynamicQuantizeLinear")
def dynamic_quantize(node: OnnxNode, x: Any) -> Any:
    """x in u8, with a scale and a zero point that its own extremes give."""
    low, high = rlx.minimum(rlx.min(x), 0), rlx.maximum(rlx.max(x), 0)
    scale = (high - low) / 255
    safe = rlx.where(scale == 0, rlx.ones_like(scale), scale)
    zero = rlx.round(rlx.clip(-low / safe, 0, 255))
    y = rlx.clip(rlx.round(x / safe) + zero, 0, 255)
    return rlx.astype(rlx.astype(y, rlx.i32), rlx.u8), scale, rlx.astype(rlx.astype(zero, rlx.i32), rlx.u8)


def exact_product(a: Any, a_zero: Any, b: Any, b_zero: Any) -> Any:
    """Return (a - a_zero) @ (b - b_zero) as i32, modulo 2^32; zero points may be one for each row of a and each column of b."""
    left: Any
    left, right = (np.int32(0) if zero is None else zero for zero in (a_zero, b_zero))
    if min(a.ndim, b.ndim) < 2:
        return rlx.matmul(less(a, left), less(b, right))
    is_column = left.ndim == 1 and left.shape[0] != 1
    return integer_matmul(a, b, rlx.expand_dims(left, axis=-1) if is_column else left, right)


@handles("MatMulInteger")
def matmul_integer(node: OnnxNode, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return exact_product(a, a_zero, b, b_zero)


@handles("QLinearMatMul", takes_coded=True)
def quantized_matmul(
    node: OnnxNode, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    if isinstance(y_zero, Coded):
        left, right = _plain(a) * rlx.astype(a_scale, rlx.f32), _plain(b) * rlx.astype(b_scale, rlx.f32)
        return quantized(node, rlx.matmul(left, right), y_scale, None, y_zero.element)
    exact = exact_product(a, a_zero, b, b_zero)
    scale = _column(a_scale, a) * rlx.astype(b_scale, rlx.f32) / rlx.astype(y_scale, rlx.f32)
    return rounded(rlx.astype(exact, rlx.f32) * scale, y_zero)


def _column(scale: Any, x: Any) -> Any:
    wide = rlx.astype(scale, rlx.f32)
    return rlx.expand_dims(wide, axis=-1) if wide.ndim == 1 and wide.shape[0] != 1 and x.ndim > 1 else wide


def rounded(x: Any, zero: Any) -> Any:
    """x rounded and moved to a zero point, between the ends of its type."""
    low, high = _bounds(element_of(zero))
    moved = rlx.clip(rlx.round(x) + rlx.astype(zero, rlx.f32), low, high)
    return rlx.astype(rlx.astype(moved, rlx.i32), dtype_of(zero.dtype))


@handles("QLinearConv")
def quantized_conv(
    node: OnnxNode,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    b: Any = None,
) -> Any:
    exact = integer_conv(node, x, w, x_zero, w_zero)
    dims = (-1, *(1,) * (x.ndim - 2))
    if b is not None:
        exact = exact + rlx.reshape(rlx.astype(b, rlx.i32), dims)
    scale = rlx.astype(x_scale, rlx.f32) * rlx.astype(w_scale, rlx.f32) / rlx.astype(y_scale, rlx.f32)
    scale = rlx.reshape(scale, dims) if scale.ndim == 1 and scale.shape[0] != 1 else scale
    return rounded(rlx.astype(exact, rlx.f32) * scale, y_zero)

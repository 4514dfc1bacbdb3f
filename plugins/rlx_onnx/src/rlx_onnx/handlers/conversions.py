"""Operations that change how numbers are represented; numbers of element types without an rlx dtype.

These, floats of eight and four bits and integers of four and two, are stored as f32, i8 and u8, which represent all of their
numbers, and rounded by arithmetic that every target has."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import TensorProto

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.system.records import frozen
from rlx_onnx.reading.tensors import DTYPES, HELD, element_name
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import Coded, is_sizes, traced

rows(
    {
        "Cast": lambda node, x: converted(node, x, node.element("to")),
        "CastLike": lambda node, x, like: converted(node, x, element_of(like)),
    },
    takes_sizes=True,
    takes_coded=True,
)


def element_of(value: Any) -> int:
    """ONNX's element type of a value."""
    if isinstance(value, Coded):
        return value.element
    return DTYPES.element(rlx.i64 if is_sizes(value) else dtype_of(value.dtype))


def converted(node: OnnxNode, x: Any, element: int) -> Any:
    """A value with elements of another type.

    Raises:
        UnsupportedError, FormatError: There is no such type, or it is text.
    """
    if element == TensorProto.STRING:
        node.refuse("conversion to texts", "numbers as the result")
    if element not in DTYPES and element not in HELD:
        raise FormatError(f"{node}: there are no elements of {element_name(element)}")
    if is_sizes(x):
        if element in (TensorProto.INT64, TensorProto.INT32):
            return x
        x = traced(x)
    if element in HELD:
        return coded(node, x.value if isinstance(x, Coded) else x, element, saturate=bool(node.get("saturate", 1)))
    x = x.value if isinstance(x, Coded) else x
    to = DTYPES[element]
    dtype = dtype_of(x.dtype)
    if dtype.is_float and to.is_integer:
        # Toward zero; narrow integers by way of a wide one, so that they wrap as they do elsewhere.
        return rlx.astype(rlx.astype(rlx.trunc(x), rlx.i64), to) if to.itemsize < 4 else rlx.astype(rlx.trunc(x), to)
    return rlx.astype(x, to)


@handles("BitCast", takes_coded=True)
def bit_cast(node: OnnxNode, x: Any) -> Any:
    """The same bits as elements of another type."""
    to = node.element("to")
    if to not in DTYPES or isinstance(x, Coded):
        return node.refuse(f"the bits of elements of {element_name(to)}", "elements of a dtype of rlx")
    required = DTYPES[to]
    if isinstance(x, np.ndarray):
        return x.view(required.numpy)
    dtype = dtype_of(x.dtype)
    if dtype.kind == "bool":
        x = rlx.astype(x, rlx.u8)
    return rlx.bitcast(x, rlx.u8) != 0 if required.kind == "bool" else rlx.bitcast(x, required)


# ----------------------------------------------------------------------- elements without an rlx dtype


@frozen
class Float:
    """A float of few bits.

    Attributes:
        mantissa: Bits after the leading one.
        least: The exponent of the smallest normal number.
        most: The largest number.
        infinite: Whether it has infinities.
        nan: Whether it has a NaN.
    """

    mantissa: int
    least: int
    most: float
    infinite: bool = False
    nan: bool = True


FLOATS: Final = {
    TensorProto.FLOAT8E4M3FN: Float(3, -6, 448.0),
    TensorProto.FLOAT8E4M3FNUZ: Float(3, -7, 240.0),
    TensorProto.FLOAT8E5M2: Float(2, -14, 57344.0, infinite=True),
    TensorProto.FLOAT8E5M2FNUZ: Float(2, -15, 57344.0),
    TensorProto.FLOAT4E2M1: Float(1, 0, 6.0, nan=False),
}

WIDTHS: Final = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2}
"""Integers of so many bits."""

SIGNED: Final = (TensorProto.INT4, TensorProto.INT2)


def coded(node: OnnxNode, x: Any, element: int, *, saturate: bool = True) -> Coded:
    """Return a value rounded to an element type, to nearest and ties to even.

    Args:
        node: The calling node.
        x: Floats or integers.
        element: ONNX's element type.
        saturate: Whether numbers out of range are clamped to the largest number, and not converted to NaN or infinity.
    """
    if element in WIDTHS:
        return Coded(_wrapped(x, WIDTHS[element], element in SIGNED), element)
    wide = rlx.astype(x, rlx.f32)
    if element == TensorProto.FLOAT8E8M0:
        return Coded(_power_of_two(node, wide, saturate), element)
    return Coded(_rounded(wide, FLOATS[element], saturate), element)


def _wrapped(x: Any, bits: int, is_signed: bool) -> Any:
    """The lowest bits of an integer, as it is when one is cut down."""
    dtype = dtype_of(x.dtype)
    full = rlx.astype(rlx.trunc(x) if dtype.is_float else x, rlx.i32)
    low = rlx.bitwise_and(full, (1 << bits) - 1)
    if is_signed:
        half = 1 << bits - 1
        low = rlx.where(low >= half, low - 2 * half, low)
    return rlx.astype(low, rlx.i8 if is_signed else rlx.u8)


def _rounded(x: Any, to: Float, saturate: bool) -> Any:
    """The nearest number of a float of few bits; of two that are as near, the even one."""
    size = rlx.abs(x)
    # The exponent by comparisons with powers of two, which are exact where a logarithm is not.
    top = int(np.log2(to.most)) + 1
    edges = np.float32(2.0) ** np.arange(to.least + 1, top + 1, dtype=np.float32)
    exponent = to.least + rlx.sum(rlx.astype(size[..., None] >= edges, rlx.f32), axis=-1)
    # Powers of two are read from a table, because exp2 may have a rounding error.
    table = (np.float32(2.0) ** np.arange(to.least - to.mantissa, top - to.mantissa + 1)).astype(np.float32)
    step = rlx.take(table, rlx.astype(exponent - to.least, rlx.i32), axis=0)
    result = rlx.round(size / step) * step
    nothing = np.float32(np.nan if to.nan else 0.0)
    largest = np.float32(to.most) if saturate or not to.nan else np.float32(np.inf) if to.infinite else nothing
    result = rlx.where(result > to.most, largest, result)
    return rlx.where(rlx.isnan(x), nothing if to.nan else np.float32(-0.0), rlx.copysign(result, x))


def _power_of_two(node: OnnxNode, x: Any, saturate: bool) -> Any:
    mode = str(node.get("round_mode", "up"))
    if not isinstance(x, np.ndarray):
        node.refuse("a traced value as powers of two (FLOAT8E8M0)", "a constant")
    with np.errstate(all="ignore"):
        size = np.abs(x.astype(np.float64))
        exponent = np.log2(size)
        full = {"up": np.ceil, "down": np.floor}.get(mode, np.round)(exponent)
        if mode == "nearest":
            low = np.floor(exponent)
            full = np.where(size / 2.0**low >= 1.5, low + 1, low)
    full = np.clip(full, -127, 127) if saturate else np.where(np.abs(full) > 127, np.nan, full)
    result = np.where(np.isnan(x) | (~np.isfinite(x) & (not saturate)), np.nan, 2.0**full)
    return result.astype(ml_dtypes.float8_e8m0fnu).astype(np.float32)

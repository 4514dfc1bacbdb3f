"""Tensors of a file as arrays, and element types as dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from rlx_core.errors import Fact, FormatError
from rlx_core.importing.dtypes import DtypeMap
from rlx_core.ir import dtypes


def element_name(element: int) -> str:
    """Return ONNX's name of an element type: `FLOAT16`."""
    known: dict[int, str] = {number: name for name, number in TensorProto.DataType.items()}
    return known.get(element, f"type {element}")


DTYPES: Final[DtypeMap[int]] = DtypeMap(
    {
        TensorProto.FLOAT: dtypes.f32,
        TensorProto.UINT8: dtypes.u8,
        TensorProto.INT8: dtypes.i8,
        TensorProto.UINT16: dtypes.u16,
        TensorProto.INT16: dtypes.i16,
        TensorProto.INT32: dtypes.i32,
        TensorProto.INT64: dtypes.i64,
        TensorProto.BOOL: dtypes.bool_,
        TensorProto.FLOAT16: dtypes.f16,
        TensorProto.DOUBLE: dtypes.f64,
        TensorProto.UINT32: dtypes.u32,
        TensorProto.UINT64: dtypes.u64,
        TensorProto.COMPLEX64: dtypes.c64,
        TensorProto.COMPLEX128: dtypes.c128,
        TensorProto.BFLOAT16: dtypes.bf16,
    },
    label=element_name,
    error=FormatError,
)
"""ONNX's element types that are dtypes of rlx."""

BITS: Final[dict[int, int]] = {
    TensorProto.UINT4: 4,
    TensorProto.INT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.UINT2: 2,
    TensorProto.INT2: 2,
}
"""Element types of which several lie in a byte."""

HELD: Final[dict[int, str]] = {
    TensorProto.UINT4: "uint8",
    TensorProto.INT4: "int8",
    TensorProto.UINT2: "uint8",
    TensorProto.INT2: "int8",
    TensorProto.FLOAT4E2M1: "float32",
    TensorProto.FLOAT8E4M3FN: "float32",
    TensorProto.FLOAT8E4M3FNUZ: "float32",
    TensorProto.FLOAT8E5M2: "float32",
    TensorProto.FLOAT8E5M2FNUZ: "float32",
    TensorProto.FLOAT8E8M0: "float32",
}
"""Element types without an rlx dtype → the dtype in which all of their numbers are stored."""

_LARGEST: Final = 2**40
"""Elements: more than any memory holds, so that a larger size is certainly wrong."""


def numpy_dtype(element: int) -> np.dtype:
    """The NumPy dtype of an element type, those of ml_dtypes among them."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))


def check_tensor(tensor: Any, where: str) -> None:
    """Require that a tensor's type and sizes are valid, before its bytes are read.

    Raises:
        FormatError: They are not.
    """
    element, dims = tensor.data_type, tuple(tensor.dims)
    if element != TensorProto.STRING and element not in DTYPES and element not in HELD:
        raise FormatError(f"{where}: it has elements of {element_name(element)}")
    if any(n < 0 for n in dims) or math.prod(dims) > _LARGEST:
        raise FormatError(f"{where}: {list(dims)} are no sizes", Fact("sizes", "each at least 0"))
    if tensor.HasField("segment"):
        raise FormatError(f"{where}: it is one segment of a tensor, which no writer makes")


def array_of(tensor: Any, where: str, outside: Callable[[Any], np.ndarray] | None = None) -> np.ndarray:
    """Return a tensor's elements, as a read-only view of the file if possible.

    Args:
        tensor: A `TensorProto`.
        where: Description of the tensor, for errors.
        outside: Reads the bytes of a tensor that lie in another file.

    Raises:
        FormatError: Its sizes and its bytes do not agree, or its element type has no representation here.
    """
    check_tensor(tensor, where)
    dims = tuple(tensor.dims)
    is_outside = tensor.data_location == TensorProto.EXTERNAL
    if is_outside or tensor.HasField("raw_data"):
        if is_outside and outside is None:
            raise FormatError(f"{where}: its bytes lie in another file, of which there is none for a model in memory")
        raw = outside(tensor) if is_outside and outside is not None else np.frombuffer(tensor.raw_data, np.uint8)
        return _of_bytes(tensor, raw, where)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: {list(dims)} and its elements do not agree ({error})") from error


def _of_bytes(tensor: Any, raw: np.ndarray, where: str) -> np.ndarray:
    element, dims = tensor.data_type, tuple(tensor.dims)
    if element == TensorProto.STRING:
        raise FormatError(f"{where}: texts are not written as bytes")
    required = (math.prod(dims) * BITS.get(element, 8 * numpy_dtype(element).itemsize) + 7) // 8
    if len(raw) != required:
        raise FormatError(f"{where}: {list(dims)} of {element_name(element)} are {required} bytes, not {len(raw)}")
    if element in BITS:
        full = TensorProto(data_type=element, dims=dims, raw_data=raw.tobytes())
        return np.asarray(numpy_helper.to_array(full))
    little = numpy_dtype(element)
    if little.byteorder == "=":
        little = little.newbyteorder("<")
    return raw.view(little).reshape(dims)

"""Operations that change how numbers are represented."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.codes import coded
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

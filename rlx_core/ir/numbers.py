"""Parsing printed elements back into constant data: exactly the bits that were printed."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from rlx_core.errors import FormatError
from rlx_core.ir.attributes import literal_from
from rlx_core.ir.graph import Literal
from rlx_core.ir.types import TensorType


def literal_from_numbers(type: TensorType, numbers: Sequence[str]) -> Literal:
    """Constant data from printed elements.

    Raises:
        FormatError: One is not a number of the dtype, or there are too many or too few.
    """
    count = type.size
    if count != len(numbers):
        raise FormatError(f"constant: {type} has {count} elements, not {len(numbers)}")
    dtype = type.dtype
    try:
        with np.errstate(all="ignore"):
            if dtype.kind == "bool":
                array = np.array([{"True": True, "False": False}[n] for n in numbers], np.bool_)
            elif dtype.is_integer:
                array = np.array([int(n) for n in numbers], dtype.numpy)
            elif dtype.is_complex:
                array = np.array([read_complex(n) for n in numbers], np.complex128).astype(dtype.numpy)
            else:
                array = np.array([read_number(n) for n in numbers], np.float64).astype(dtype.numpy)
    except (KeyError, ValueError, OverflowError):
        raise FormatError(f"constant: {', '.join(numbers)} are not all elements of {dtype}") from None
    return literal_from(dtype, type.static_shape, array.astype(array.dtype.newbyteorder("<")).tobytes())


def read_number(text: str) -> float:
    if text.startswith("nan("):
        return float(struct.unpack(">d", bytes.fromhex(text[6:-1]))[0])
    return float(text)


def read_complex(text: str) -> complex:
    real, imag = text.removeprefix("complex(").removesuffix(")").split(",")
    return complex(read_number(real.strip()), read_number(imag.strip()))

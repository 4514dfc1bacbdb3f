"""The memory of one run: an aligned arena and the arrays that live in it, made once and used by every run after."""

from __future__ import annotations

import math

import numpy as np

from rlx_core.errors import Fact, OutOfMemoryError

__all__ = ["allocate", "empty"]


def allocate(nbytes: int, alignment: int) -> np.ndarray:
    """`nbytes` uninitialised bytes whose address is a multiple of `alignment`.

    Raises:
        OutOfMemoryError: The machine does not have that much.
    """
    raw = empty((nbytes + alignment,), np.dtype(np.uint8), "an arena")
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


def empty(shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
    """An uninitialised array.

    Raises:
        OutOfMemoryError: The machine does not have that much.
    """
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise OutOfMemoryError(
            f"cpu: {what} of {math.prod(shape) * dtype.itemsize} bytes cannot be allocated",
            Fact("cause", error),
            hint="bind smaller sizes, or free memory",
        ) from None

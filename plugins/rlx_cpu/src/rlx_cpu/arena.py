"""The memory of one run: an aligned arena and the arrays that live in it, made once and used by every run after."""

from __future__ import annotations

import numpy as np

from rlx_core.errors import Fact, OutOfMemoryError

__all__ = ["allocate"]


def allocate(nbytes: int, alignment: int) -> np.ndarray:
    """`nbytes` uninitialised bytes whose address is a multiple of `alignment`.

    Raises:
        OutOfMemoryError: The machine does not have that much.
    """
    try:
        raw = np.empty(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError) as error:
        raise OutOfMemoryError(
            f"cpu: an arena of {nbytes} bytes cannot be allocated",
            Fact("cause", error),
            hint="bind smaller sizes, or free memory",
        ) from None
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]

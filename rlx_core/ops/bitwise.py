"""Bits: and, or, exclusive or, not, and shifts.

The first four also take bool, for which they are the logical functions, as in the Python Array API: masks are combined with
`mask & other`. These ops have no derivatives.
combined. Nothing here has a derivative.
"""

from __future__ import annotations

import numpy as np

from rlx_core.ir.dtypes import INTEGERS, bool_
from rlx_core.ir.op import ZERO
from rlx_core.ops.kinds import elementwise

_BITS = (bool_, *INTEGERS)


def _count(b: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which counts are in 0..bits-1, and the counts with the others replaced by 0; they are undefined in C."""
    is_inside = (b >= 0) & (b < bits)
    return is_inside, np.where(is_inside, b, 0).astype(b.dtype)


def shift_left_array(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a · 2^b modulo 2^bits, and 0 for a count outside 0..bits-1."""
    is_inside, count = _count(b, 8 * a.dtype.itemsize)
    return np.where(is_inside, np.left_shift(a, count), 0).astype(a.dtype)


def shift_right_array(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return floor(a / 2^b), and the sign (0 or -1) for a count outside 0..bits-1."""
    is_inside, count = _count(b, 8 * a.dtype.itemsize)
    return np.where(is_inside, np.right_shift(a, count), np.where(a < 0, -1, 0).astype(a.dtype))


bitwise_and = elementwise(
    "BitwiseAnd", np.bitwise_and, ZERO, ZERO, doc="a & b, bit by bit.", accepts=_BITS, is_commutative=True
)
bitwise_or = elementwise(
    "BitwiseOr", np.bitwise_or, ZERO, ZERO, doc="a | b, bit by bit.", accepts=_BITS, is_commutative=True
)
bitwise_xor = elementwise(
    "BitwiseXor", np.bitwise_xor, ZERO, ZERO, doc="a ^ b, bit by bit.", accepts=_BITS, is_commutative=True
)
bitwise_invert = elementwise("BitwiseNot", np.invert, ZERO, doc="~x, bit by bit.", accepts=_BITS)
bitwise_left_shift = elementwise(
    "ShiftLeft",
    shift_left_array,
    ZERO,
    ZERO,
    doc="a · 2^b modulo 2^bits; a count that is negative or at least the number of bits gives 0.",
    accepts=INTEGERS,
    ranges={"b": (0, 9)},
)
bitwise_right_shift = elementwise(
    "ShiftRight",
    shift_right_array,
    ZERO,
    ZERO,
    doc="floor(a / 2^b); a count that is negative or at least the number of bits gives the sign, 0 or -1.",
    accepts=INTEGERS,
    ranges={"a": (-100, 100), "b": (0, 9)},
)

"""Codes of fewer than eight bits: unpacked by ops, packed by NumPy, and combined from the bits of several arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ops.array_shapes import reshape
from rlx_core.ops.bitwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift
from rlx_core.ops.selection import where


def shifted(codes: Any, bits: int, axis: int = -2) -> Any:
    """Return all codes of `bits` bits that lie in each byte, on a new axis: the lowest bits first.

    Args:
        codes: `u8[...]`.
        axis: The new axis, -2 or -1 of the result: byte by byte if it is the last.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    inner = axis == -1
    spread = codes[..., None] if inner else codes[..., None, :]
    return bitwise_and(bitwise_right_shift(spread, shifts if inner else shifts[:, None]), np.uint8(2**bits - 1))


def flat(x: Any, axes: int) -> Any:
    """Return `x` with its last `axes` axes as one."""
    return reshape(x, (*x.shape[:-axes], int(np.prod(x.shape[-axes:]))))


def low_then_high(codes: Any) -> Any:
    """Return 4-bit codes, `u8[..., 2n]` from `u8[..., n]`: all low halves of bytes, then all high ones."""
    return flat(shifted(codes, 4), 2)


def pairs(codes: Any) -> Any:
    """Return 4-bit codes, `u8[..., 2n]` from `u8[..., n]`: the low half of a byte, then its high half."""
    return flat(shifted(codes, 4, axis=-1), 2)


def with_high_bits(low: Any, high: Any, shift: int) -> Any:
    """Return `low | high << shift`, of `u8` arrays."""
    return bitwise_or(low, bitwise_left_shift(high, np.uint8(shift)))


def joined(first: Any, second: Any) -> Any:
    """Return two arrays one after the other on the last axis, element by element, so that loads of products can compute it."""
    return flat(where(np.array([[True], [False]]), first[..., None, :], second[..., None, :]), 2)


def packed_low_then_high(codes: np.ndarray) -> np.ndarray:
    """Return bytes of two 4-bit codes each; `low_then_high` unpacks them."""
    half = codes.shape[-1] // 2
    return packed(codes.reshape(*codes.shape[:-1], 2, half), 4)


def packed_pairs(codes: np.ndarray) -> np.ndarray:
    """Return bytes of two 4-bit codes each; `pairs` unpacks them."""
    return packed(np.moveaxis(codes.reshape(*codes.shape[:-1], -1, 2), -1, -2), 4)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return bytes of the codes along axis -2, the first in the lowest bits; `shifted` unpacks them."""
    shifts = (np.arange(codes.shape[-2]) * bits)[:, None]
    return np.bitwise_or.reduce(codes.astype(np.int64) << shifts, axis=-2).astype(np.uint8)

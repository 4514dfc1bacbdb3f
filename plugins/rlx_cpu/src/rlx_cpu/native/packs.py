"""Packing ahead of time, with NumPy alone: rearrangements of bound operands, by the name in a `Pack`.

A kernel that was loaded from a cache comes without its emitter, so the packing of its operands is described as data: a name in
`FORMS` and numbers. Everything here must stay importable without LLVM's builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

Form = Callable[[np.ndarray, tuple[int, ...], np.ndarray], None]
"""Rearranges an operand by some numbers into bytes, all of which it writes."""


def panels(matrix: np.ndarray, widths: tuple[int, ...], out: np.ndarray) -> None:
    """`[..., k, n]` as one matrix after the other, each in panels `[k, width]`; columns beyond the last are zeros.

    Args:
        matrix: The operand, of any strides.
        widths: Columns of each panel.
        out: Output with the bytes of the panels of all matrices.
    """
    k, n = matrix.shape[-2:]
    entries = matrix.reshape(-1, k, n)
    packed = out.view(matrix.dtype).reshape(len(entries), sum(widths) * k)
    first = 0
    for width in widths:
        count = max(0, min(width, n - first))
        place = packed[:, first * k : (first + width) * k].reshape(-1, k, width)
        place[:, :, :count] = entries[:, :, first : first + count]
        place[:, :, count:] = 0
        first += width


def pairs(matrix: np.ndarray, widths: tuple[int, ...], out: np.ndarray) -> None:
    """`[..., k, n]` of 8 or 16 bits as panels of words of two neighbours along k; an odd last one meets 0.

    Args:
        matrix: As for `panels`; the other arguments too.
    """
    k, n = matrix.shape[-2:]
    bits = matrix.view(f"u{matrix.itemsize}")
    words = np.zeros((*matrix.shape[:-2], -(-k // 2), n, 2), bits.dtype)
    words[..., 0] = bits[..., 0::2, :]
    words[..., : k // 2, :, 1] = bits[..., 1::2, :]
    panels(words.view(f"u{2 * matrix.itemsize}")[..., 0], widths, out)


def interleaved(matrix: np.ndarray, sizes: tuple[int, ...], out: np.ndarray) -> None:
    """`[n, k]` as tiles of some rows, each of which has words of neighbours along k, one for each row; rows beyond n are zeros.

    Args:
        matrix: The operand; k is a multiple of the elements of a word, times those of a byte.
        sizes: Rows of a tile, elements of a word, elements of a byte (two: of words one after the other, of four bits each),
            and a number that is added to bytes.
        out: Output with the bytes of all tiles.
    """
    rows, per_word, per_byte, zero = sizes
    n, k = matrix.shape
    bits = np.dtype(f"u{matrix.itemsize}")
    vectors = k // (per_word * per_byte)
    tiles = out.view(bits).reshape(-1, vectors, rows, per_word)
    for tile, start in enumerate(range(0, n, rows)):
        codes = np.ascontiguousarray(matrix[start : start + rows]).view(bits)
        count = len(codes)
        words = codes.reshape(count, vectors, per_byte, per_word).transpose(2, 1, 0, 3)
        low, *high = (words + bits.type(zero)) if zero else words
        tiles[tile, :, :count] = (low & bits.type(15)) | (high[0] << bits.type(4)) if high else low
        tiles[tile, :, count:] = 0


FORMS: Final[Mapping[str, Form]] = MappingProxyType({"panels": panels, "pairs": pairs, "interleaved": interleaved})
"""Every form by its name."""

"""Packing ahead of time, with NumPy alone: rearrangements of bound operands, by the name in a `Pack`.

A kernel that was loaded from a cache comes without its emitter, so the packing of its operands is described as data: a name in
`FORMS` and numbers. Everything here must stay importable without LLVM's builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

COPIED_NBYTES: Final = 1 << 18
"""Bytes of an operand that are rearranged at a time, so that intermediate arrays stay in L2."""

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


def quads(matrix: np.ndarray, widths: tuple[int, ...], out: np.ndarray) -> None:
    """`[..., k, n]` of bytes as panels of words of four neighbours along k; the last ones meet 0.

    Args:
        matrix: As for `panels`; the other arguments too.
    """
    panels(_quads(matrix, 0), widths, out)


def corrected_quads(matrix: np.ndarray, widths: tuple[int, ...], out: np.ndarray) -> None:
    """`quads` after a row of i32: the sum of each column times −128 (i8) or 128 (u8), modulo 2^32.

    Args:
        matrix: As for `panels`; the other arguments too.
    """
    words = _quads(matrix, 1)
    words.view(np.int32)[..., 0, :] = matrix.sum(-2, dtype=np.int32) * np.int32(
        -128 if matrix.dtype == np.int8 else 128
    )
    panels(words, widths, out)


def _quads(matrix: np.ndarray, head: int) -> np.ndarray:
    """Words of four neighbours along k, after `head` rows that are 0."""
    k, n = matrix.shape[-2:]
    words = np.zeros((*matrix.shape[:-2], head - (-k // 4), n, 4), np.uint8)
    for i in range(4):
        rows = matrix.view(np.uint8)[..., i::4, :]
        words[..., head : head + rows.shape[-2], :, i] = rows
    return words.view(np.uint32)[..., 0]


def interleaved(matrix: np.ndarray, sizes: tuple[int, ...], out: np.ndarray) -> None:
    """`[n, k]` as tiles of some rows, each of which has words of neighbours along k, one for each row; rows beyond n are zeros.

    Args:
        matrix: The operand; with two elements in a byte, `[n, k/2]`, the first one in the low half.
        sizes: Rows of a tile, elements of a word, and elements of a byte: two are those of one word in the low halves, and those
            of the next one in the high halves. k is a multiple of the product of both numbers of elements.
        out: Output with the bytes of all tiles.
    """
    rows, per_word, per_byte = sizes
    columns = matrix.shape[1]
    bits = np.dtype(f"u{matrix.itemsize}")
    vectors = columns // per_word
    tiles = out.view(bits).reshape(-1, vectors, rows, per_word)
    step = max(1, COPIED_NBYTES // max(1, columns * matrix.itemsize * rows))
    for tile in range(0, len(tiles), step):
        elements = np.ascontiguousarray(matrix[tile * rows : (tile + step) * rows]).view(bits)
        if len(elements) % rows:
            elements = np.pad(elements, ((0, -len(elements) % rows), (0, 0)))
        if per_byte == 2:
            codes = np.stack([elements & 15, elements >> 4], axis=-1).reshape(-1, rows, vectors, 2, per_word)
            words = codes[..., 0, :] | codes[..., 1, :] << 4
        else:
            words = elements.reshape(-1, rows, vectors, per_word)
        tiles[tile : tile + step] = words.transpose(0, 2, 1, 3)


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "panels": panels,
        "pairs": pairs,
        "quads": quads,
        "corrected quads": corrected_quads,
        "interleaved": interleaved,
    }
)
"""Every form by its name."""

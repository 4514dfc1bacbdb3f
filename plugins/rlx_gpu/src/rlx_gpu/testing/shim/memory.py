"""Memory of a stand-in, between guards, which detect writes out of bounds."""

from __future__ import annotations

from typing import Final

import numpy as np

from rlx_core.system.records import define

POISON: Final = 0xFF
"""The byte that fresh memory is filled with: NaN in every float."""

GUARD: Final = 256
"""Bytes before and after every buffer that must not be written."""

GUARDED: Final = np.arange(7, 7 + GUARD, dtype=np.uint16).astype(np.uint8)


@define(eq=False)
class ShimBuffer:
    """Memory between guards."""

    memory: np.ndarray
    start: int
    nbytes: int
    is_free: bool = False

    @property
    def data(self) -> np.ndarray:
        return self.memory[self.start : self.start + self.nbytes]

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + self.start

    @property
    def is_intact(self) -> bool:
        """Whether no write went out of bounds."""
        begin, end = self.start, self.start + self.nbytes
        before, behind = self.memory[begin - GUARD : begin], self.memory[end : end + GUARD]
        return bool((before == GUARDED).all() and (behind == GUARDED).all())


def guarded(nbytes: int, alignment: int) -> ShimBuffer:
    """Memory between guards."""
    memory = np.full(nbytes + 2 * GUARD + alignment, POISON, np.uint8)
    start = GUARD + -(memory.ctypes.data + GUARD) % alignment
    memory[start - GUARD : start] = GUARDED
    memory[start + nbytes : start + nbytes + GUARD] = GUARDED
    return ShimBuffer(memory, start, nbytes)

"""What the allocator of results goes by: which blocks it keeps, and the words in which it remembers them."""

from __future__ import annotations

from typing import Final

__all__ = ["BUSY", "FIRST", "HELD", "LARGE", "MOST", "SLOTS", "TURN", "WORDS"]

LARGE: Final = 4 << 20
"""Bytes from which a block lies in huge pages, and is kept."""

SLOTS: Final = 8
"""Blocks that are kept at most."""

MOST: Final = 256 << 20
"""Bytes that are kept at most."""

BUSY, TURN, HELD, FIRST = range(4)
"""Whether somebody is at it, the slot of the oldest block, the bytes of all blocks; then a slot has a block's start and size."""

WORDS: Final = FIRST + 2 * SLOTS

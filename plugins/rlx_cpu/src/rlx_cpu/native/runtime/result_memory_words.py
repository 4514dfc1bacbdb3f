"""Constants of the allocator of results: which freed blocks it caches, and the layout of its state."""

from __future__ import annotations

from typing import Final

LARGE: Final = 4 << 20
"""Bytes from which a block lies in huge pages, and is kept."""

SLOTS: Final = 8
"""Blocks that are kept at most."""

MAX_CACHED_NBYTES: Final = 256 << 20
"""Bytes that are kept at most."""

OFFERED: Final = 32 << 20
"""Bytes beyond which the system is offered the pages of a block that is kept. To offer them and to touch them again costs
a tenth of a copy, and smaller blocks would stay with the process anyway: the C library keeps them."""

BUSY, TURN, CACHED_NBYTES, FIRST = range(4)
"""Lock flag, slot of the oldest block, total bytes of all blocks; then the start and the size of a block per slot."""

WORDS: Final = FIRST + 2 * SLOTS

"""Python's collector of cycles: less frequent while a program is compiled and while a part of rlx is imported.

Both make hundreds of thousands of small objects that stay, and by default the collector looks through the young ones after every
700: for nothing, and for a tenth to a sixth of the time. The threshold is the interpreter's, so the first that comes here raises
it and the last that leaves sets it back.
"""

from __future__ import annotations

import gc
from contextlib import ContextDecorator
from typing import Final

from rlx_core.system.locks import Lock

YOUNG: Final = 200_000
"""Number of allocations between two collections of the young generation."""

_lock = Lock("the collector's threshold")
_inside = 0
_before = (0, 0, 0)


class collecting_seldom(ContextDecorator):
    """Inside, garbage collection is less frequent: the first threshold of the cycle collector is raised."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _inside, _before
        with _lock:
            if _inside == 0:
                _before = gc.get_threshold()
                gc.set_threshold(_before[0] and max(_before[0], YOUNG), *_before[1:])  # 0 is never
            _inside += 1

    def __exit__(self, *raised: object) -> None:
        global _inside
        with _lock:
            _inside -= 1
            if _inside == 0:
                gc.set_threshold(*_before)

"""CuPy's other package: whether factorizations wait and say that they failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cupy.cuda import world


@contextmanager
def errstate(*, linalg: str) -> Iterator[None]:
    before, world.raises = world.raises, linalg == "raise"
    try:
        yield
    finally:
        world.raises = before

"""Digests of blobs: each is the digest of its chunks' digests, which several processors compute in parallel."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

_PIECE: Final = 1 << 22
"""Bytes of a piece: two milliseconds of a processor."""

_MOST_THREADS: Final = 4


def pieces(data: memoryview) -> list[memoryview]:
    return [data[a:b] for a, b in pairwise((*range(0, len(data), _PIECE), len(data)))]


def digest_of(data: memoryview) -> bytes:
    """The digest of a blob."""
    return hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in pieces(data))).digest()


def digests_of(blobs: Sequence[memoryview]) -> list[bytes]:
    """The digests of several blobs; by several threads, if they are large."""
    work = [(number, i, piece) for number, blob in enumerate(blobs) for i, piece in enumerate(pieces(blob))]
    digests: dict[tuple[int, int], bytes] = {}
    left = iter(work)

    def take() -> None:
        for number, i, piece in left:
            digests[number, i] = hashlib.sha256(piece).digest()

    many = sum(map(len, blobs)) >= 2 * _PIECE
    helpers = []
    for _ in range(min(os.cpu_count() or 1, _MOST_THREADS) - 1 if many else 0):
        helper = threading.Thread(target=take)
        with suppress(RuntimeError):  # no more threads available
            helper.start()
            helpers.append(helper)
    take()
    for helper in helpers:
        helper.join()
    joined = [b"".join(digests[number, i] for i in range(len(pieces(blob)))) for number, blob in enumerate(blobs)]
    return [hashlib.sha256(each).digest() for each in joined]

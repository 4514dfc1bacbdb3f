"""The index type of every kernel template: 32 bits below `INDEX_LIMIT`, else 64 bits or a typed refusal.

The relevant numbers are those that a kernel computes: positions along an axis, numbers of points, rows or tiles, and the
elements of a buffer that it accesses. Products of sizes that no kernel computes, such as the number of scores in attention, are
not bounded. Languages whose buffers are arrays of words have no 64-bit integers, and refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from rlx_gpu.codegen.languages import GpuDialect

IndexType = Literal["u32", "u64"]

INDEX_LIMIT: Final = 1 << 31
"""Counts from which an index has 64 bits. Half of 2**32, so that the ends of tiles and the steps of loops, which lie behind the
last element, have 32 bits, too."""


def index_type(*counts: int) -> IndexType:
    """The type of numbers below these counts."""
    return "u64" if max(counts, default=0) >= INDEX_LIMIT else "u32"


def as_index(text: str, kind: str) -> str:
    """A number of either type as an index of a type."""
    return text if kind == "u32" else f"(u64)({text})"


def fault_place(text: str, kind: str) -> str:
    """A place as the words for faults have it, in 32 bits: the places behind the last of them are reported as that one."""
    return text if kind == "u32" else f"(u32)(({text}) < 0xfffffffe ? ({text}) : 0xfffffffe)"


def reach(strides: Sequence[int], extents: Sequence[int], itemsize: int, offset: int = 0) -> int:
    """Return the elements from the start of a buffer to the end of the accessed range; strides and offset are in bytes."""
    steps = (abs(s) * (n - 1) for s, n in zip(strides, extents, strict=True) if n)
    return (offset + sum(steps)) // itemsize + 1


def index_refusal(language: GpuDialect, *counts: int) -> str | None:
    """Return why a language cannot count so far, as "needs …" would continue."""
    if language.buffers == "words" and index_type(*counts) == "u64":
        return f"fewer than {INDEX_LIMIT} elements in {language.name}"
    return None


def length_refusal(what: str, *lengths: int) -> str | None:
    """Return why a template whose positions have 32 bits refuses axes of these lengths, as "needs …" would continue."""
    if index_type(*lengths) == "u64":
        return f"{what} of fewer than {INDEX_LIMIT} elements, not {max(lengths)}"
    return None

"""Guards: comparisons of objects that a traced function read with their state before it was traced.

They run on every call of a staged transform, so they are flat lists of tuples, compared in loops without function calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import numpy as np

from rlx_core.ir.op import exact

SCALARS: Final = (bool, int, float, complex, str, bytes, type(None), type(...))
"""Types whose values are compared by type and exact value; everything else is compared by identity."""


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()
"""Marks an entry, an attribute or the content of a cell that does not exist."""


def same(current: Any, expected: Any) -> bool:
    """Compare two captured values: scalars by type and bits, everything else by identity."""
    if current is expected:
        return True
    kind = type(expected)
    if type(current) is not kind:
        return False
    if kind in SCALARS:
        return exact(current) == exact(expected)
    return issubclass(kind, np.generic) and bool(
        current.dtype == expected.dtype and current.tobytes() == expected.tobytes()
    )


class ArrayContent(NamedTuple):
    """An array with a copy of its elements: arrays are mutable, and a change in place does not change their identity.

    Attributes:
        array: The captured array.
        memory: Its elements as bytes, without a copy; `None` if they have gaps.
        copy: The bytes at the time of the trace.
        shape, dtype: Its type at that time; both can be assigned to.
    """

    array: np.ndarray
    memory: memoryview | None
    copy: bytearray
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: np.ndarray) -> ArrayContent:
        plain = np.asarray(array)
        memory = None
        if plain.flags.c_contiguous:
            memory = plain.reshape(-1).view(np.uint8).data
        elif plain.flags.f_contiguous:
            memory = plain.T.reshape(-1).view(np.uint8).data
        content = bytearray(plain.tobytes() if memory is None else memory.tobytes())
        return cls(array, memory, content, plain.shape, plain.dtype)

    def holds(self) -> bool:
        """Compare the elements bit by bit, so that a NaN equals itself and zeros of different signs differ."""
        if self.array.shape != self.shape or self.array.dtype is not self.dtype:
            return False
        # `bytearray.__eq__` compares buffers by memcmp: 10 GB/s, where `numpy.array_equal` makes an array of bools.
        content: object = np.asarray(self.array).tobytes() if self.memory is None else self.memory
        return self.copy == content


class Guards:
    """The guards of one trace.

    Attributes:
        entries: (mapping, key, expected): globals, names of modules and of classes.
        attributes: (object, name, expected).
        cells: (closure cell, expected).
        sequences: (sequence, its items).
        mappings: (mapping, its keys, its values), in order, since iteration sees the order.
        sets: (set, its members with their types).
        lengths: (mapping, number of entries), of classes: an added attribute may hide an inherited one.
        contents: Arrays.
    """

    __slots__ = ("attributes", "cells", "contents", "entries", "lengths", "mappings", "sequences", "sets")

    def __init__(self) -> None:
        self.entries: list[tuple[Mapping[Any, Any], Any, Any]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.sequences: list[tuple[Sequence[Any], tuple[Any, ...]]] = []
        self.mappings: list[tuple[Mapping[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self.sets: list[tuple[Any, Any]] = []
        self.lengths: list[tuple[Any, int]] = []
        self.contents: list[ArrayContent] = []

    def hold(self) -> bool:
        """Compare all captured values with their state when the function was traced."""
        try:
            return self._hold()
        except Exception:  # noqa: BLE001  comparisons call code of users' classes; what cannot be compared has changed
            return False

    def _hold(self) -> bool:
        for cell, expected in self.cells:
            current = _content(cell)
            if current is not expected and not same(current, expected):
                return False
        for mapping, key, expected in self.entries:
            current = mapping.get(key, ABSENT)
            if current is not expected and not same(current, expected):
                return False
        for instance, name, expected in self.attributes:
            current = getattr(instance, name, ABSENT)
            if current is not expected and not same(current, expected):
                return False
        for mapping, length in self.lengths:
            if len(mapping) != length:
                return False
        for sequence, items in self.sequences:
            if len(sequence) != len(items) or not (all(map(is_, sequence, items)) or all(map(same, sequence, items))):
                return False
        for mapping, keys, values in self.mappings:
            if len(mapping) != len(keys) or not _same_entries(mapping, keys, values):
                return False
        for members, expected in self.sets:
            if typed_members(members) != expected:
                return False
        return all(content.holds() for content in self.contents)


def typed_members(members: Iterable[Any]) -> frozenset[Any]:
    """The members of a set as a set in which 1, 1.0 and True differ."""
    return frozenset((type(m), exact(m)) if type(m) in SCALARS else m for m in members)


def _same_entries(mapping: Mapping[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    for current, expected in ((mapping, keys), (mapping.values(), values)):
        if not any(all(map(compare, current, expected)) for compare in (is_, same)):
            return False
    return True


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet, or deleted
        return ABSENT

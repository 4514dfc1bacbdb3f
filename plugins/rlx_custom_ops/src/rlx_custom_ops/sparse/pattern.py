"""The positions of the elements of a sparse matrix: known when a program is written, and compared by content."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen

from rlx_core.errors import Fact, IndexRangeError, ShapeError


def _pair(shape: Any) -> tuple[int, int]:
    rows, columns = shape
    return int(rows), int(columns)


@frozen(eq=False, slots=False, repr=False)
class Pattern:
    """The columns of each row's elements, in ascending order and each once.

    Attributes:
        indices: The columns of all elements, row after row: integers [e].
        indptr: Index of each row's first element, and the end of the last row: integers [m + 1].
        shape: Numbers of rows and columns.

    Raises:
        ShapeError: `indices` and `indptr` are not those of such a matrix; the message has the first error.
        IndexRangeError: A column is outside.
    """

    indices: np.ndarray = field(converter=np.asarray)
    indptr: np.ndarray = field(converter=np.asarray)
    shape: tuple[int, int] = field(converter=_pair)

    def __attrs_post_init__(self) -> None:
        rows, columns = self.shape
        for name, numbers in (("indices", self.indices), ("indptr", self.indptr)):
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
                raise ShapeError(
                    f"sparse: {name} must be integers on one axis, not {numbers.dtype}{list(numbers.shape)}"
                )
        if len(self.indptr) != rows + 1:
            raise ShapeError(f"sparse: indptr of {rows} rows has {rows + 1} elements, not {len(self.indptr)}")
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.indices) or (np.diff(self.indptr) < 0).any():
            raise ShapeError(f"sparse: indptr must ascend from 0 to the number of elements ({len(self.indices)})")
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < columns:
            worst = int(self.indices.max() if self.indices.max() >= columns else self.indices.min())
            raise IndexRangeError(f"sparse: column {worst} is outside of {columns} columns")
        is_same_row = np.diff(self.rows) == 0
        if (np.diff(self.columns)[is_same_row] <= 0).any():
            raise ShapeError(
                "sparse: the columns of each row must ascend, each of them once",
                hint="Csr.from_coo sorts elements and adds up those of one place",
            )

    @property
    def size(self) -> int:
        """Number of elements."""
        return len(self.indices)

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each element."""
        return np.repeat(np.arange(self.shape[0], dtype=self.place), np.diff(self.indptr))

    @cached_property
    def columns(self) -> np.ndarray:
        """The column of each element, in the dtype of `rows`."""
        return self.indices.astype(self.place)

    @property
    def place(self) -> np.dtype[Any]:
        """The dtype of rows and columns."""
        return np.dtype(np.int32 if max(self.shape) < 2**31 else np.int64)

    @cached_property
    def digest(self) -> bytes:
        """The content in a few bytes."""
        content = hashlib.blake2b(repr(self.shape).encode(), digest_size=16)
        content.update(self.indptr.astype("<i8").tobytes())
        content.update(self.indices.astype("<i8").tobytes())
        return content.digest()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Pattern) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Pattern({self.size} elements, shape={self.shape})"

    # ------------------------------------------------------------------------------------- patterns

    @classmethod
    def at(cls, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> tuple[Pattern, np.ndarray]:
        """The pattern of elements at these places in any order, and which of its elements each of them is."""
        m, n = shape
        for name, numbers, size in (("row", rows, m), ("column", columns, n)):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < size:
                raise IndexRangeError(
                    f"sparse: a {name} is outside of {size} {name}s",
                    Fact("found", f"{numbers.min()} .. {numbers.max()}"),
                )
        places, which = np.unique(rows.astype(np.int64) * n + columns, return_inverse=True)
        row, column = np.divmod(places, n) if n else (places, places)
        return cls(column, np.searchsorted(row, np.arange(m + 1)), shape), which

    @cached_property
    def transposed(self) -> tuple[Pattern, np.ndarray]:
        """The pattern of the transpose, and which element of this one each of its elements is."""
        order = np.argsort(self.columns, kind="stable")
        m, n = self.shape
        starts = np.searchsorted(self.columns[order], np.arange(n + 1))
        return Pattern(self.rows[order], starts, (n, m)), order

    def united(self, other: Pattern) -> tuple[Pattern, np.ndarray, np.ndarray]:
        """The pattern that has the elements of both, and which of its elements each one's are."""
        rows, columns = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("rows", "columns"))
        both, which = Pattern.at(rows, columns, self.shape)
        return both, which[: self.size], which[self.size :]

    def product(self, other: Pattern) -> tuple[Pattern, np.ndarray, np.ndarray, np.ndarray]:
        """The pattern of the product with `other`, and all products of elements in it: an element of this one, one of the
        other, and the one that their product is added to.
        """
        counts = np.diff(other.indptr)[self.columns]
        left = np.repeat(np.arange(self.size), counts)
        first = np.cumsum(counts) - counts  # where the products of each element of this one begin
        right = other.indptr[:-1][self.columns][left] + np.arange(len(left)) - first[left]
        result, which = Pattern.at(self.rows[left], other.columns[right], (self.shape[0], other.shape[1]))
        return result, left, right, which

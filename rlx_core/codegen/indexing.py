"""Gather and scatter as a problem in five sizes.

For any axes of an op, batch axes are one axis here, and so are the axes before, at and after the indexed one:
table[b, o, n, d], cells[b, o, i, d] (what is read or written), indices[b, i].
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np

from rlx_core.codegen.places import Fault
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.indexing import OutOfBounds
from rlx_core.system.records import frozen


@frozen
class Indexing:
    """A gather or a scatter, all dense, with known sizes, or with expressions for unknown ones.

    Attributes:
        batch, outer, size, count, inner: B, O, N, I and D.
        dtype: Dtype of the indices.
        oob: The mode for an index out of range. With "clip", an axis without elements is an error.
    """

    batch: int
    outer: int
    size: int
    count: int
    inner: int
    dtype: DType
    oob: OutOfBounds

    @classmethod
    def of(cls, table: TensorType, indices: TensorType, axis: int, batch_dims: int, oob: OutOfBounds) -> Indexing:
        shape, place = cast("tuple[int, ...]", table.shape), normalize_axis(axis, table.rank)
        size = shape[place]
        return cls(
            batch=prod(shape[:batch_dims]),
            outer=prod(shape[batch_dims:place]),
            size=size,
            count=prod(cast("tuple[int, ...]", indices.shape[batch_dims:])),
            inner=prod(shape[place + 1 :]),
            dtype=indices.dtype,
            oob="error" if oob == "clip" and size == 0 else oob,
        )

    def __str__(self) -> str:
        table = f"[{self.batch}, {self.outer}, {self.size}, {self.inner}]"
        return f"index {table} along 2 at {self.dtype}[{self.batch}, {self.count}], outside {self.oob}"

    @property
    def lines(self) -> int:
        """Number of pairs of b and o, each of which is a separate table."""
        return self.batch * self.outer

    @property
    def has_fault(self) -> bool:
        return self.oob == "error" and self.count != 0

    def gather(self, table: np.ndarray, indices: np.ndarray, fill: Any = 0) -> np.ndarray:
        """The cells [b, o, i, d] that are read of a dense table.

        Raises:
            IndexRangeError: An index is outside where that is a fault.
        """
        rows, inside = self._rows(indices)
        cells = np.full((self.batch, self.outer, self.count, self.inner), fill, table.dtype)
        if self.size:
            reshaped = table.reshape(self.batch, self.outer, self.size, self.inner)
            read = np.take_along_axis(reshaped, rows[:, None, :, None], 2)
            cells = np.where((inside | (self.oob == "clip"))[:, None, :, None], read, cells)
        return cells

    def scatter(
        self, combine: np.ufunc | None, table: np.ndarray, cells: np.ndarray, indices: np.ndarray
    ) -> np.ndarray:
        """Return a dense table with cells combined into it in index order, or, without a ufunc, assigned.

        Combined elements are computed in the accumulator of their dtype and rounded once.

        Raises:
            IndexRangeError: An index is out of range in a mode where that is a fault.
        """
        rows, inside = self._rows(indices)
        accumulator = table.dtype if combine is None else dtype(table.dtype).accumulator.numpy
        result = table.astype(accumulator).reshape(self.batch, self.outer, self.size, self.inner)
        updates = cells.astype(accumulator).reshape(self.batch, self.outer, self.count, self.inner)
        for b, i in np.argwhere(inside | (self.oob == "clip")):
            row = result[b, :, rows[b, i]]
            row[...] = updates[b, :, i] if combine is None else combine(row, updates[b, :, i])
        return result.astype(table.dtype)

    def _rows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[b, i]: the nearest row, and whether an index is inside."""
        requested = indices.reshape(self.batch, self.count)
        inside = (requested >= 0) & (requested < self.size)
        if self.has_fault and not inside.all():
            raise IndexRangeError(f"index {requested[~inside][0]} is outside an axis of {self.size} elements")
        # As a number without a sign a huge one is not negative: its nearest end is the last.
        return np.where(inside, requested, np.where(requested < 0, 0, max(self.size - 1, 0))).astype(np.int64), inside


def fault_of(problem: Indexing, title: str) -> Fault | None:
    """Return the fault of an index out of range, if that is a fault."""
    if not problem.has_fault:
        return None
    return Fault(f"{title}: index {{}} is outside an axis of {problem.size} elements")

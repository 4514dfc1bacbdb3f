"""A matrix product as numbers: sizes, strides, and batch axes of which as many as possible have become rows.

`[8, 128, 384] @ [384, 1536]` is one product of 1024 rows, not eight of 128, whenever the strides of A and of the result let
the batch axis continue the rows and B is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from attrs import evolve, frozen

from rlx_core.codegen.places import Place
from rlx_core.ir.dtypes import DType

__all__ = ["Matrix", "Product"]


@frozen
class Matrix:
    """Strides in bytes: of the batch axes, from a row to the next, from a column to the next."""

    batch: tuple[int, ...]
    by_row: int
    by_column: int

    @classmethod
    def of(cls, place: Place, batch: Sequence[int]) -> Matrix:
        """The last two axes of a tensor that broadcasts to the batch axes `batch`; axes of size 1 count as contiguous."""
        shape, strides = place.type.static_shape, place.strides
        own = tuple(s if d > 1 else 0 for d, s in zip(shape[:-2], strides[:-2], strict=True))
        itemsize = place.type.dtype.itemsize
        by_column = strides[-1] if shape[-1] > 1 else itemsize
        by_row = strides[-2] if shape[-2] > 1 else max(shape[-1], 1) * itemsize
        return cls((0,) * (len(batch) - len(own)) + own, by_row, by_column)

    @classmethod
    def of_row(cls, place: Place) -> Matrix:
        """A vector as a matrix whose rows are all the same."""
        size, itemsize = place.type.static_shape[-1], place.type.dtype.itemsize
        return cls((), 0, place.strides[-1] if size > 1 else itemsize)


@frozen
class Product:
    """`[*batch, m, k] @ [*batch, k, n]`.

    Attributes:
        dtype: Of the result.
        factors: The dtype of A and B.
        b_shape: The batch axes that B has itself, in front of its matrices, aligned with `batch`.
        is_bound: Whether B is the same in every run.
    """

    dtype: DType
    factors: DType
    batch: tuple[int, ...]
    b_shape: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    is_bound: bool = False

    @classmethod
    def of(cls, a: Place, b: Place, c: Place) -> Product:
        """The product of two tensors into a third, with batch axes folded into rows."""
        batch = c.type.static_shape[:-2]
        m, k = a.type.static_shape[-2:]
        n = b.type.static_shape[-1]
        own = b.type.static_shape[:-2]
        b_shape = (1,) * (len(batch) - len(own)) + own
        whole = cls(
            c.type.dtype, a.type.dtype, batch, b_shape, m, n, k,
            Matrix.of(a, batch), Matrix.of(b, batch), Matrix.of(c, batch), b.is_bound,
        )  # fmt: skip
        return whole.folded()

    def __str__(self) -> str:
        left, right = ([*self.batch, self.m, self.k], [*(d for d in self.b_shape if d > 1), self.k, self.n])
        sums = f" -> {self.dtype}" if self.dtype is not self.factors else ""
        return f"product {self.factors}{left} @ {self.factors}{right}{' bound' if self.is_bound else ''}{sums}"

    @property
    def entries(self) -> int:
        """How many products there are."""
        return prod(self.batch)

    @property
    def b_entries(self) -> int:
        """How many different matrices B holds."""
        return prod(self.b_shape)

    def folded(self) -> Product:
        """The same with trailing batch axes made rows, where the strides allow it."""
        p = self
        while p.batch and p._can_fold():
            size = p.batch[-1]
            a_row, c_row = (x.by_row if p.m > 1 else x.batch[-1] for x in (p.a, p.c))
            if size == 1:
                a_row, c_row = p.a.by_row, p.c.by_row
            p = evolve(
                p,
                batch=p.batch[:-1],
                b_shape=p.b_shape[:-1],
                m=p.m * size,
                a=Matrix(p.a.batch[:-1], a_row, p.a.by_column),
                b=Matrix(p.b.batch[:-1], p.b.by_row, p.b.by_column),
                c=Matrix(p.c.batch[:-1], c_row, p.c.by_column),
            )
        return p

    def _can_fold(self) -> bool:
        if self.batch[-1] == 1:
            return True
        if self.b_shape[-1] != 1:
            return False
        return self.m == 1 or all(x.batch[-1] == self.m * x.by_row for x in (self.a, self.c))

    def run(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        """The product with NumPy on one-dimensional `uint8` arrays, whose first byte is where the first element is.

        Sums are held in the accumulator of the result's dtype and rounded once.
        """
        if not (self.entries and self.m and self.n):
            return
        held = self.dtype.accumulator.numpy
        left = self._view(a, self.factors, self.a, self.m, self.k).astype(held)
        right = self._view(b, self.factors, self.b, self.k, self.n).astype(held)
        self._view(c, self.dtype, self.c, self.m, self.n)[...] = (left @ right).astype(self.dtype.numpy)

    def _view(self, data: np.ndarray, dtype: DType, matrix: Matrix, rows: int, columns: int) -> np.ndarray:
        strides = (*matrix.batch, matrix.by_row, matrix.by_column)
        return np.ndarray((*self.batch, rows, columns), dtype.numpy, data, 0, strides)

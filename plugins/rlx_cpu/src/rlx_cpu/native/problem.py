"""A matrix product as numbers: sizes, strides, and batch axes of which as many as possible have become rows.

`[8, 128, 384] @ [384, 1536]` is one product of 1024 rows, not eight of 128, whenever the strides of A and of the result let
the batch axis continue the rows and B is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import evolve, frozen

from rlx_core.ir.dtypes import DType
from rlx_cpu.native import ir
from rlx_cpu.native.contract import Place
from rlx_cpu.native.simd import index, times

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
        b_shape: The batch axes that B has itself, in front of its matrices, aligned with `batch`.
    """

    dtype: DType
    batch: tuple[int, ...]
    b_shape: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix

    @classmethod
    def of(cls, a: Place, b: Place, c: Place) -> Product:
        """The product of two tensors into a third, with batch axes folded into rows."""
        batch = c.type.static_shape[:-2]
        m, k = a.type.static_shape[-2:]
        n = b.type.static_shape[-1]
        own = b.type.static_shape[:-2]
        b_shape = (1,) * (len(batch) - len(own)) + own
        whole = cls(
            c.type.dtype, batch, b_shape, m, n, k, Matrix.of(a, batch), Matrix.of(b, batch), Matrix.of(c, batch)
        )
        return whole.folded()

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

    def entry_offset(self, b: ir.IRBuilder, entry: ir.Value, matrix: Matrix) -> ir.Value:
        """Bytes from the first product's part of an operand to that of product `entry`."""
        return self._walk(b, entry, matrix.batch)

    def b_offset(self, b: ir.IRBuilder, matrix: ir.Value) -> ir.Value:
        """Bytes from B's first own matrix to another one."""
        return self._walk(b, matrix, self.b.batch, self.b_shape)

    def b_entry(self, b: ir.IRBuilder, entry: ir.Value) -> ir.Value:
        """Which of B's own matrices product `entry` takes."""
        strides, step = [], 1
        for size in reversed(self.b_shape):
            strides.append(step if size > 1 else 0)
            step *= size
        return self._walk(b, entry, tuple(reversed(strides)))

    def _walk(
        self, b: ir.IRBuilder, entry: ir.Value, strides: tuple[int, ...], shape: tuple[int, ...] | None = None
    ) -> ir.Value:
        """The dot product of an entry's coordinates (in the batch axes, or in `shape`) with `strides`."""
        total: ir.Value = index(0)
        rest = entry
        for size, stride in zip(reversed(self.batch if shape is None else shape), reversed(strides), strict=True):
            if stride:
                total = b.add(total, times(b, b.srem(rest, index(size)), stride))
            rest = b.sdiv(rest, index(size))
        return total

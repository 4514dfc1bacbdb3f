"""A matrix product as numbers: sizes, strides, and batch axes, merged into rows where possible.

`[8, 128, 384] @ [384, 1536]` is one product of 1024 rows, not eight of 128, whenever the strides of A and of the result let
the batch axis continue the rows and B is the same for all of them.

The rows of A may be several axes that cannot be merged by stride, and so may its terms; both occur for windows of an image.
Rows are then grouped in *lines* and terms in *runs*, which have a uniform stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import cast

import numpy as np

from rlx_core.codegen.layout import merged
from rlx_core.codegen.loads import OperandLoad
from rlx_core.codegen.places import Place
from rlx_core.ir.dtypes import DType
from rlx_core.ir.types import TensorType
from rlx_core.system.records import evolve, frozen

Axes = tuple[tuple[int, int], ...]
"""Axes that are counted as one, outermost first: the size of each and its stride in bytes."""


@frozen
class MatrixStrides:
    """Strides in bytes: of the batch axes, from a row to the next, from a column to the next."""

    batch: tuple[int, ...]
    by_row: int
    by_column: int

    @classmethod
    def of(cls, place: Place, batch: Sequence[int]) -> MatrixStrides:
        """The last two axes of a tensor that broadcasts to the batch axes `batch`; axes of size 1 count as contiguous."""
        shape, strides = sizes_of(place), place.strides
        batch_strides = tuple(s if d > 1 else 0 for d, s in zip(shape[:-2], strides[:-2], strict=True))
        itemsize = place.type.dtype.itemsize
        by_column = itemsize if shape[-1] in (0, 1) else strides[-1]
        by_row = max(shape[-1], 1) * itemsize if shape[-2] in (0, 1) else strides[-2]
        return cls((0,) * (len(batch) - len(batch_strides)) + batch_strides, by_row, by_column)

    @classmethod
    def of_row(cls, place: Place) -> MatrixStrides:
        """A vector as a matrix whose rows are all the same."""
        size, itemsize = place.type.static_shape[-1], place.type.dtype.itemsize
        return cls((), 0, place.strides[-1] if size > 1 else itemsize)


@frozen
class MatrixProduct:
    """`[*batch, m, k] @ [*batch, k, n]`.

    Attributes:
        dtype: Dtype of the result.
        factors: The dtype of A and B.
        b_shape: The batch axes that B has itself, in front of its matrices, aligned with `batch`.
        is_bound: Whether B is the same in every run.
        lines, runs: Axes of A around its rows and around its terms; `m` and `k` count all of them. There are no batch axes then.
        result_lines: Axes of C around its rows, of the same sizes, where one stride does not lead through all of them.
        load: The computation of B from other arrays, if it is not in memory; `b` are then the strides that it would have.
    """

    dtype: DType
    factors: DType
    batch: tuple[int, ...]
    b_shape: tuple[int, ...]
    m: int
    n: int
    k: int
    a: MatrixStrides
    b: MatrixStrides
    c: MatrixStrides
    is_bound: bool = False
    lines: Axes = ()
    runs: Axes = ()
    result_lines: Axes = ()
    load: OperandLoad | None = None

    @classmethod
    def of(cls, a: Place, b: Place, c: Place) -> MatrixProduct:
        """The product of two tensors into a third, with batch axes folded into rows."""
        batch = c.type.static_shape[:-2]
        m, k = a.type.static_shape[-2:]
        n = b.type.static_shape[-1]
        batch_shape = b.type.static_shape[:-2]
        b_shape = (1,) * (len(batch) - len(batch_shape)) + batch_shape
        unfolded = cls(
            c.type.dtype, a.type.dtype, batch, b_shape, m, n, k,
            MatrixStrides.of(a, batch), MatrixStrides.of(b, batch), MatrixStrides.of(c, batch), b.is_bound,
        )  # fmt: skip
        return unfolded.folded()

    @classmethod
    def of_axes(cls, a: Place, b: Place, c: Place, axes: int) -> MatrixProduct:
        """The product over the last `axes` axes of a tensor, and a matrix, into a tensor: what of it can be one axis is.

        The first axis of rows, or of terms, may be of unknown size.
        """
        shape, strides, itemsize, stored = sizes_of(a), a.strides, a.type.dtype.itemsize, c.type.dtype.itemsize
        cut = len(shape) - axes
        m, k, n = prod(shape[:cut]), prod(shape[cut:]), sizes_of(b)[1]
        if 0 in shape:  # of an operand without elements nothing is read
            strides = (0,) * len(shape)
        rows, terms = ((1,) if 0 in sizes else sizes for sizes in (shape[:cut], shape[cut:]))
        *runs, (_, by_column) = [(axis[0], axis[1]) for axis in merged(terms, strides[cut:])] or [(1, itemsize)]
        written = [(axis[0], axis[1]) for axis in merged(rows, c.strides[:cut])] or [(1, n * stored)]
        # Rows of C that are one axis keep those of A from nothing.
        extra_strides = (c.strides[:cut],) if len(written) > 1 else ()
        together = merged(rows, strides[:cut], *extra_strides)
        lines = [(axis[0], axis[1]) for axis in together] or [(1, itemsize)]
        if extra_strides:
            written = [(axis[0], axis[2]) for axis in together]
        result = MatrixStrides((), written[-1][1], stored if n == 1 else c.strides[-1])
        return cls(
            c.type.dtype, a.type.dtype, (), (), m, n, k, MatrixStrides((), lines[-1][1], by_column),
            MatrixStrides.of(b, ()), result, b.is_bound, tuple(lines[:-1]), tuple(runs), tuple(written[:-1]),
        )  # fmt: skip

    def __str__(self) -> str:
        left, right = ([*self.batch, self.m, self.k], [*(d for d in self.b_shape if d > 1), self.k, self.n])
        sums = f" -> {self.dtype}" if self.dtype is not self.factors else ""
        parts = [f"rows by {self.width}"] * bool(self.lines) + [f"terms by {self.length}"] * bool(self.runs)
        suffix = f" ({', '.join(parts)})" if parts else ""
        b = f"{self.factors}{right}" if self.load is None else str(self.load)
        return f"product {self.factors}{left}{suffix} @ {b}{' bound' if self.is_bound else ''}{sums}"

    @property
    def width(self) -> int:
        """Rows of a line."""
        return self.m // prod(size for size, _ in self.lines)

    @property
    def length(self) -> int:
        """Terms of a run."""
        return self.k // prod(size for size, _ in self.runs)

    @property
    def entries(self) -> int:
        """Number of products."""
        return prod(self.batch)

    @property
    def b_entries(self) -> int:
        """Number of different matrices in B."""
        return prod(self.b_shape)

    def folded(self) -> MatrixProduct:
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
                a=MatrixStrides(p.a.batch[:-1], a_row, p.a.by_column),
                b=MatrixStrides(p.b.batch[:-1], p.b.by_row, p.b.by_column),
                c=MatrixStrides(p.c.batch[:-1], c_row, p.c.by_column),
            )
        return p

    def _can_fold(self) -> bool:
        if self.batch[-1] == 1:
            return True
        if self.b_shape[-1] != 1:
            return False
        return self.m == 1 or all(x.batch[-1] == self.m * x.by_row for x in (self.a, self.c))

    @classmethod
    def of_load(cls, a: Place, load: OperandLoad, c: Place) -> MatrixProduct:
        """Return the product of a tensor and a loaded matrix into another tensor."""
        b = Place.dense(TensorType(load.dtype, load.shape))
        return evolve(cls.of(a, b, c), load=load)

    def run(self, a: np.ndarray, b: np.ndarray | Sequence[np.ndarray], c: np.ndarray) -> None:
        """Compute the product with NumPy on one-dimensional `uint8` arrays, whose first byte is that of the first element.

        Sums are computed in the accumulator of the result's dtype and rounded once.

        Args:
            a, c: A and C.
            b: B, or the arrays of its load.
        """
        if self.load is not None:
            assert not isinstance(b, np.ndarray), "a load reads a sequence of arrays"
            matrix = np.ascontiguousarray(self.load.run(b)).reshape(-1).view(np.uint8)
            evolve(self, load=None).run(a, matrix, c)
            return
        assert isinstance(b, np.ndarray), "B is one array"
        if not (self.entries and self.m and self.n):
            return
        accumulator = self.dtype.accumulator.numpy
        left = self._rows(a).astype(accumulator)
        right = self._view(b, self.factors, self.b, self.k, self.n).astype(accumulator)
        result = (left @ right).astype(self.dtype.numpy)
        if self.result_lines:
            axes = (*self.result_lines, (self.width, self.c.by_row), (self.n, self.c.by_column))
            shape, strides = zip(*axes, strict=True)
            np.ndarray(shape, self.dtype.numpy, c, 0, strides)[...] = result.reshape(shape)
        else:
            self._view(c, self.dtype, self.c, self.m, self.n)[...] = result

    def _rows(self, data: np.ndarray) -> np.ndarray:
        if not (self.lines or self.runs):
            return self._view(data, self.factors, self.a, self.m, self.k)
        axes = (*self.lines, (self.width, self.a.by_row), *self.runs, (self.length, self.a.by_column))
        shape, strides = zip(*axes, strict=True)
        return np.ndarray(shape, self.factors.numpy, data, 0, strides).reshape(self.m, self.k)

    def _view(self, data: np.ndarray, dtype: DType, matrix: MatrixStrides, rows: int, columns: int) -> np.ndarray:
        strides = (*matrix.batch, matrix.by_row, matrix.by_column)
        return np.ndarray((*self.batch, rows, columns), dtype.numpy, data, 0, strides)


def sizes_of(place: Place) -> tuple[int, ...]:
    """The sizes of a tensor's axes: expressions stand where they are unknown."""
    return cast("tuple[int, ...]", place.type.shape)


def is_uneven(axes: Sequence[tuple[int, int]]) -> bool:
    """Return whether no one stride leads through axes that are counted as one."""
    return any(outer != size * stride for (_, outer), (size, stride) in pairwise(axes))

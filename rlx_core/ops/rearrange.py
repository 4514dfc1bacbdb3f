"""Rearrangements that are compositions of views, slices and concatenations: roll, tile, repeat, triangles, diagonals.

They have no rules: these follow from the decompositions, which move each element at most once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import AxisError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, smaller
from rlx_core.ir.dtypes import ALL, bool_, c64, f32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_rank, normalize_axes, normalize_axis
from rlx_core.ops.creation import iota, zeros_like
from rlx_core.ops.movement import concat, narrow, pad_axis
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import as_axes, expand, reshape


@define_op
class Roll(Op):
    """The elements of each listed axis shifted, wrapping around at the end.

    Attributes:
        shift: The shifts, one per axis; negative ones move toward the front.
        axes: The axes.
    """

    shift: tuple[int, ...] = field(converter=as_axes)
    axes: tuple[int, ...] = field(converter=as_axes)
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        normalize_axes(self.axes, x.rank)
        if len(self.shift) != len(self.axes):
            raise ShapeError(f"there are {len(self.shift)} shifts for {len(self.axes)} axes")
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.roll(x, self.shift, self.axes) if self.axes else x

    def decompose(self, x: Value) -> Value:
        for axis, shift in zip(self.axes, self.shift, strict=True):
            place = normalize_axis(axis, x.ndim)
            size = x.shape[place]
            cut = _new_start(shift, size)
            if cut == 0:
                continue
            head = narrow(x, axis=place, start=cut, length=size - cut)
            x = concat([head, narrow(x, axis=place, start=0, length=cut)], axis=place)
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[5]", shift=(2,), axes=(0,))
        for axis in range(4):
            yield Sample("f32[2, 3, 4, 5]", shift=(-1,), axes=(axis,))
        yield Sample("f32[3, 4]", shift=(7, -9), axes=(1, 0))
        yield Sample("f32[0]", shift=(1,), axes=(0,))
        yield Sample("f32[]", shift=(), axes=())
        yield Rejected("f32[3]", shift=(1, 2), axes=(0,), error=ShapeError, says="2 shifts")
        yield Rejected("f32[3]", shift=(1,), axes=(1,), error=AxisError, says="outside")


def _new_start(shift: int, size: Dim) -> Dim:
    """Return the index of the element that a roll moves to the front: -shift modulo the size, and 0 for an empty axis."""
    if isinstance(size, int):
        return -shift % size if size else 0
    single = smaller(size, 1)
    if abs(shift) == 1:
        return size - single if shift == 1 else single
    return -shift % (size + 1 - single) if shift else 0


@define_op
class Tile(Op):
    """`x` repeated as a whole along its axes; missing repeats or axes in front are 1.

    Shapes:
        x: [n_1, ..]    ->    y: [repeats_1·n_1, ..]
    """

    repeats: tuple[int, ...] = field(converter=as_axes)
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        if any(r < 0 for r in self.repeats):
            raise ShapeError(f"repeats must be at least 0, not {list(self.repeats)}")
        repeats, shape = self._aligned(x.shape)
        return x.with_shape(r * n for r, n in zip(repeats, shape, strict=True))

    def _aligned(self, shape: tuple[Dim, ...]) -> tuple[tuple[int, ...], tuple[Dim, ...]]:
        rank = max(len(shape), len(self.repeats))
        return (1,) * (rank - len(self.repeats)) + self.repeats, (1,) * (rank - len(shape)) + tuple(shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.tile(x, self.repeats)

    def decompose(self, x: Value) -> Value:
        repeats, shape = self._aligned(x.shape)
        expanded = reshape(x, tuple(d for n in shape for d in (1, n)))
        spread = expand(expanded, tuple(d for r, n in zip(repeats, shape, strict=True) for d in (r, n)))
        return reshape(spread, tuple(r * n for r, n in zip(repeats, shape, strict=True)))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", repeats=(2, 1))
        yield Sample("f32[2, 3]", repeats=(2,))
        yield Sample("f32[3]", repeats=(2, 3))
        yield Sample("f32[]", repeats=(2,))
        yield Sample("f32[2]", repeats=(0,))
        yield Sample("f32[2]", repeats=())
        yield Rejected("f32[2]", repeats=(-1,), error=ShapeError, says="at least 0")


@define_op
class Repeat(Op):
    """Each element of an axis repeated in place.

    Shapes:
        x: [.., n, ..]    ->    y: [.., n·repeats, ..]
    """

    repeats: int
    axis: int
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        axis = normalize_axis(self.axis, x.rank)
        if self.repeats < 0:
            raise ShapeError(f"repeats must be at least 0, not {self.repeats}")
        return x.with_shape((*x.shape[:axis], x.shape[axis] * self.repeats, *x.shape[axis + 1 :]))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x, self.repeats, self.axis)

    def decompose(self, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim) + 1
        expanded = reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
        spread = expand(expanded, (*x.shape[:axis], self.repeats, *x.shape[axis:]))
        return reshape(spread, self.infer(x.type).shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", repeats=2, axis=1)
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f32[2, 3, 1, 4]", repeats=3, axis=axis)
        yield Sample("f32[2]", repeats=0, axis=0)
        yield Rejected("f32[2]", repeats=-1, axis=0, error=ShapeError, says="at least 0")
        yield Rejected("f32[2]", repeats=1, axis=1, error=AxisError, says="outside")


class Triangle(Op):
    """Part of each matrix; the rest is 0."""

    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        expect_rank("x", x, 2)
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[3, 4]")
        for k in (-5, -1, 1, 2, 9):
            yield Sample("f32[2, 3, 4]", k=k)
        yield Sample("f32[0, 3]")
        yield Rejected("f32[3]", error=ShapeError, says="2 or more")


def _column_minus_row(x: Value) -> Value:
    shape = x.shape[-2:]
    columns: Value = iota(axis=1, shape=shape)
    return columns - iota(axis=0, shape=shape)


@define_op
class Tril(Triangle):
    """The lower triangle of each matrix: elements with column - row <= k, 0 elsewhere."""

    k: int = 0

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.tril(x, self.k)

    def decompose(self, x: Value) -> Value:
        return where(_column_minus_row(x) <= self.k, x, zeros_like(x))


@define_op
class Triu(Triangle):
    """The upper triangle of each matrix: elements with column - row >= k, 0 elsewhere."""

    k: int = 0

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.triu(x, self.k)

    def decompose(self, x: Value) -> Value:
        return where(_column_minus_row(x) >= self.k, x, zeros_like(x))


@define_op
class Diagonal(Op):
    """A diagonal of each matrix: y[.., i] = x[.., i, i + offset], or x[.., i - offset, i] below the main one.

    Shapes:
        x: [.., n, m]    ->    y: [.., d]
    """

    offset: int = 0
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        expect_rank("x", x, 2)
        return x.with_shape((*x.shape[:-2], self._length(x)))

    def _length(self, x: TensorType) -> int:
        n, m = x.shape[-2:]
        if not (isinstance(n, int) and isinstance(m, int)):
            raise ShapeError(f"a diagonal needs known last dims, not {n} and {m}", hint="bind the sizes first")
        return max(min(n, m - self.offset) if self.offset >= 0 else min(n + self.offset, m), 0)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.diagonal(x, self.offset, -2, -1)

    def decompose(self, x: Value) -> Value:
        n, m = x.type.static_shape[-2:] if x.type.is_static else (x.shape[-2].__index__(), x.shape[-1].__index__())
        length = self._length(x.type)
        start = (self.offset if self.offset >= 0 else -self.offset * m) if length else 0
        flat = reshape(x, (*x.shape[:-2], n * m))
        return narrow(flat, axis=-1, start=start, length=length, step=m + 1)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, i64, bool_, c64):
            yield Sample(f"{d}[3, 4]")
        for offset in (-3, -1, 1, 3, 4):
            yield Sample("f32[2, 3, 4]", offset=offset)
        yield Sample("f32[4, 2]", offset=-1)
        yield Rejected("f32[3]", error=ShapeError, says="2 or more")


@define_op
class Diag(Op):
    """Square matrices with the elements of the last axis on one diagonal, 0 elsewhere.

    Shapes:
        x: [.., n]    ->    y: [.., n + |offset|, n + |offset|]
    """

    offset: int = 0
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        expect_rank("x", x, 1)
        side = x.shape[-1] + abs(self.offset)
        return x.with_shape((*x.shape[:-1], side, side))

    def decompose(self, x: Value) -> Value:
        n, last = x.shape[-1], x.ndim - 1
        side = n + abs(self.offset)
        # In row-major order the diagonal's elements are side + 1 apart: each is padded to that length, itself first.
        spread = pad_axis(reshape(x, (*x.shape, 1)), last + 1, 0, side)
        flat = reshape(spread, (*x.shape[:-1], n * (side + 1)))
        before = self.offset if self.offset >= 0 else -self.offset * side
        padded = pad_axis(flat, last, before, side * side - before - n * (side + 1))
        return reshape(padded, (*x.shape[:-1], side, side))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, i64, bool_, c64):
            yield Sample(f"{d}[3]")
        for offset in (-2, -1, 1, 2):
            yield Sample("f32[2, 3]", offset=offset)
        yield Sample("f32[0]")
        yield Rejected("f32[]", error=ShapeError, says="1 or more")


roll_axes, tile, repeat_each = op_function(Roll), op_function(Tile), op_function(Repeat)
tril, triu, diagonal, diag = op_function(Tril), op_function(Triu), op_function(Diagonal), op_function(Diag)

"""Order: sorting, the indices that sort, the k largest, and positions in a sorted axis.

Ties go to the smaller index in both directions, and NaN is larger than every number: last when ascending, first when
descending. Values have derivatives with respect to the selected elements; indices have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rlx_core.errors import AxisError, ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product, require
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bool_, f32, f64, i32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Kink, Op, Zero, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_dtype_of, expect_rank, normalize_axis, same_dim
from rlx_core.ops.along_axis import add_along_axis, take_along_axis
from rlx_core.ops.conversion import zero_jvp, zero_vjp
from rlx_core.ops.kinds import promoted
from rlx_core.ops.movement import narrow
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched, along_axis_batch, reshape

ORDERED = (bool_, *INTEGERS, *FLOATS)


def expect_index_dtype(dtype: DType) -> None:
    """Require a dtype that index results may have.

    Raises:
        DtypeError: It is neither i64 nor i32.
    """
    if dtype not in (i64, i32):
        raise DtypeError(f"index_dtype must be i64 or i32, not {dtype}")


def sorting_positions(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Return the stable order of an axis; descending keeps ties in index order too."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


class Selection(Op):
    """Elements of one axis in some order, and their indices: values have the derivatives of the elements, indices none."""

    category: ClassVar = "movement"
    axis: int

    # For the k largest these rules touch k elements; the derivative of the decomposition, a whole sort, would touch n.
    def vjp(self, g: Sequence[Any], x: Value, *, y: Sequence[Value]) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, x.ndim)
        return (add_along_axis(g[0], y[1], axis, x.shape[axis]),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Sequence[Value]) -> tuple[Value, Zero]:
        return take_along_axis(t[0], y[1], axis=normalize_axis(self.axis, x.ndim)), ZERO

    batch = along_axis_batch


@define_op
class Sort(Selection):
    """The elements of an axis in order, and their indices.

    Shapes:
        x: [.., n, ..]    ->    values: [.., n, ..]    indices: [.., n, ..]

    Attributes:
        axis: The axis that is sorted.
        descending: Largest first; NaN is larger than every number.
        stable: Ties stay in index order. They always do in rlx; a backend may use a faster order if it is false.
        index_dtype: i64 or i32.
    """

    axis: int = -1
    descending: bool = False
    stable: bool = True
    index_dtype: DType = i64

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        normalize_axis(self.axis, x.rank)
        expect_dtype("x", x, ORDERED, "real or bool")
        expect_index_dtype(self.index_dtype)
        return x, x.with_dtype(self.index_dtype)

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = sorting_positions(x, self.axis, self.descending)
        return np.take_along_axis(x, positions, self.axis), positions

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ORDERED:
            yield Sample(f"{d}[3, 5]")
        for axis in (0, 1, 2, 3):
            yield Sample("f32[3, 4, 2, 5]", axis=axis, descending=axis % 2 == 1)
        yield Sample("i64[7]", descending=True, index_dtype=i32, low=2**53, high=2**53 + 3)
        yield Sample("f32[2, 0]")
        yield Sample("f32[1]", axis=0)
        yield Sample(
            "f64[6]", make=lambda rng: [rng.permutation([1.0, np.nan, np.inf, -np.inf, 1.0, -0.0])], is_smooth=False
        )
        yield Rejected("c64[3]", error=DtypeError, says="real")
        yield Rejected("f32[]", error=AxisError, says="outside")
        yield Rejected("f32[3]", index_dtype=f32, error=DtypeError, says="i64 or i32")


sort_with_indices = op_function(Sort)


@define_op
class ArgSort(Op):
    """The indices that sort the elements of an axis; ties stay in index order.

    Attributes:
        axis, descending, stable, index_dtype: As for `Sort`.
    """

    category: ClassVar = "movement"
    axis: int = -1
    descending: bool = False
    stable: bool = True
    index_dtype: DType = i64

    def infer(self, x: TensorType) -> TensorType:
        return Sort(self.axis, self.descending, self.stable, self.index_dtype).infer(x)[1]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return sorting_positions(x, self.axis, self.descending)

    def decompose(self, x: Value) -> Value:
        _, positions = Sort(self.axis, self.descending, self.stable, self.index_dtype)(x)
        return positions

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ORDERED:
            yield Sample(f"{d}[3, 5]", descending=True)
        for axis in (0, 1, 2, 3):
            yield Sample("f32[3, 4, 2, 5]", axis=axis)
        yield Rejected("c64[3]", error=DtypeError, says="real")


arg_sort = op_function(ArgSort)


@define_op
class TopK(Selection):
    """The k largest (or smallest) elements of an axis in order, and their indices; ties go to the smaller index.

    Shapes:
        x: [.., n, ..]    ->    values: [.., k, ..]    indices: [.., k, ..]

    Attributes:
        k: The number of elements; at most n.
        axis: The axis that is searched.
        largest: Largest first, NaN before all; otherwise smallest first.
        index_dtype: i64 or i32.
    """

    k: Dim
    axis: int = -1
    largest: bool = True
    index_dtype: DType = i64
    kinks: ClassVar = (Kink([1.0, 1.0], takes="first", gives=[1.0, 0.0], k=1),)

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        axis = normalize_axis(self.axis, x.rank)
        expect_dtype("x", x, ORDERED, "real or bool")
        expect_index_dtype(self.index_dtype)
        if not (require(">=", self.k, 0) and require(">=", x.shape[axis], self.k)):
            raise ShapeError(f"k must be 0..{x.shape[axis]} (axis {axis} of {x}), not {self.k}")
        values = x.with_shape((*x.shape[:axis], self.k, *x.shape[axis + 1 :]))
        return values, values.with_dtype(self.index_dtype)

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = sorting_positions(x, self.axis, descending=self.largest)
        positions = np.take(order, np.arange(self.k.__index__()), axis=self.axis)
        return np.take_along_axis(x, positions, self.axis), positions

    def decompose(self, x: Value) -> tuple[Value, ...]:
        ordered = Sort(self.axis, descending=self.largest, index_dtype=self.index_dtype)(x)
        return tuple(narrow(v, axis=self.axis, start=0, length=self.k) for v in ordered)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ORDERED:
            yield Sample(f"{d}[3, 5]", k=2)
        for axis in (0, 1, 2, 3):
            yield Sample("f32[3, 4, 2, 5]", k=2, axis=axis, largest=axis % 2 == 0)
        yield Sample("f32[4]", k=4, index_dtype=i32)
        yield Sample("f32[4]", k=0)
        yield Rejected("f32[4]", k=5, error=ShapeError, says="0..4")
        yield Rejected("c64[4]", k=1, error=DtypeError, says="real")


top_k = op_function(TopK)


@define_op
class SearchSorted(Op):
    """The positions at which values would be inserted into a sorted axis to keep it sorted.

    Shapes:
        sorted: [n]    v: [..]    ->    y: [..]
        sorted: [b.., n]    v: [b.., m]    ->    y: [b.., m]

    Attributes:
        side: "left": before equal elements; "right": after them.
        index_dtype: i64 or i32.
    """

    category: ClassVar = "reduction"
    side: Literal["left", "right"] = "left"
    index_dtype: DType = i64
    vjp = zero_vjp
    jvp = zero_jvp

    def infer(self, sorted: TensorType, v: TensorType) -> TensorType:
        expect_rank("sorted", sorted, 1)
        expect_dtype("sorted", sorted, ORDERED, "real or bool")
        expect_index_dtype(self.index_dtype)
        expect_dtype_of("v", v, "sorted", sorted)
        if sorted.rank > 1:
            expect_rank("v", v, sorted.rank, sorted.rank)
            for k, (a, b) in enumerate(zip(sorted.shape[:-1], v.shape[:-1], strict=True)):
                if not same_dim(a, b):
                    raise ShapeError(f"axis {k} differs ({a} != {b})")
        return v.with_dtype(self.index_dtype)

    def prepare(self, sorted: Value, v: Value) -> tuple[Value | None, ...]:
        return promoted(sorted, v)

    def reference(self, sorted: np.ndarray, v: np.ndarray) -> np.ndarray:
        if sorted.ndim == 1:
            return np.asarray(np.searchsorted(sorted, v, side=self.side))
        rows = sorted.reshape(int(np.prod(sorted.shape[:-1])), sorted.shape[-1])
        result = np.zeros(v.shape, np.int64)
        lines = (len(rows), v.shape[-1])
        for row, queries, out in zip(rows, v.reshape(lines), result.reshape(lines), strict=True):
            out[:] = np.searchsorted(row, queries, side=self.side)
        return result

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        if not is_batched[0] and x[0].ndim == 1:
            return self(*x)
        rows, queries = all_batched(size, x, is_batched)
        if rows.ndim > 2:
            return self(rows, queries)
        # One sorted axis for each batch element takes one axis of values.
        flat = reshape(queries, (size, product(queries.shape[1:])))
        return reshape(self(rows, flat), queries.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def rows(*shapes: tuple[int, ...]) -> Any:
            return lambda rng: [
                np.sort(rng.integers(-3, 4, shapes[0]), axis=-1),
                rng.integers(-4, 5, shapes[1]),
            ]

        for d in (i64, f32, f64, *INTEGERS[:2]):
            yield Sample(f"{d}[6]", f"{d}[2, 4]", make=rows((6,), (2, 4)), side="right")
        yield Sample("f32[2, 6]", "f32[2, 3]", make=rows((2, 6), (2, 3)))
        yield Sample("f32[2, 3, 6]", "f32[2, 3, 4]", make=rows((2, 3, 6), (2, 3, 4)), side="right", index_dtype=i32)
        yield Sample("f32[5]", "f32[]", make=rows((5,), ()))
        yield Sample("f32[0]", "f32[3]", make=rows((0,), (3,)))
        yield Sample("i32[4]", "f32[3]", make=rows((4,), (3,)))
        yield Rejected("f32[]", "f32[2]", error=ShapeError, says="1 or more")
        yield Rejected("f32[2, 3]", "f32[4, 3]", error=ShapeError, says="2 != 4")
        yield Rejected("f32[3]", "f32[3]", side="middle", error=ConfigError, says="middle")


search_sorted = op_function(SearchSorted)

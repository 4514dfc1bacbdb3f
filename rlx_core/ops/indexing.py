"""Reads and writes at indices: gather, its transpose, and writes that overwrite or combine.

All use one layout: `batch_dims` leading axes are shared by both sides, and one `axis` is indexed. The attribute `oob` defines
the behaviour of an index outside the axis: "error" refuses, "clip" clamps it, "fill" reads a constant and writes nothing.
Gradients are consistent with it: the gradient of a clipped index goes to the element that it read, a filled one has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from attrs import evolve

from rlx_core.errors import AxisError, ConfigError, DtypeError, IndexRangeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import ALL, INTEGERS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_shape, normalize_axis, same_dim
from rlx_core.ops.arguments import choice
from rlx_core.ops.conversion import per_element
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched, transpose

OutOfBounds = Literal["error", "clip", "fill"]


def checked_policy(what: str, out_of_bounds: Any) -> OutOfBounds:
    """Return the argument `out_of_bounds` of the function `what`.

    Raises:
        ConfigError: It is not "error", "clip" or "fill".
    """
    policy: OutOfBounds = out_of_bounds
    choice(f"{what}: out_of_bounds", policy, get_args(OutOfBounds))
    return policy


def checked_indices(op: str, indices: np.ndarray, size: int, oob: OutOfBounds) -> tuple[np.ndarray, np.ndarray]:
    """Return indices that are safe to use, and which of them are in range.

    Raises:
        IndexRangeError: An index is out of range and `oob` is "error", or there is no element to clip to.
    """
    # Compared before conversion: an unsigned index above 2^63 must not become negative.
    inside = (indices >= 0) & (indices < size)
    if not inside.all():
        worst = indices[~inside].flat[0]
        if oob == "error" or (oob == "clip" and size == 0):
            raise IndexRangeError(f"{op}: index {worst} is outside an axis of {size} elements")
    last = max(size - 1, 0)
    return np.where(inside, indices, np.where(indices < 0, 0, last)).astype(np.int64), inside


class Indexed(Op):
    """Base of Gather and the scatters: the layout, the checks and the batching of index operands."""

    category: ClassVar = "movement"
    axis: int
    batch_dims: int
    oob: OutOfBounds

    def _place(self, table: TensorType, indices: TensorType) -> int:
        """Return the indexed axis, after checking the dims that the two types must share."""
        axis = normalize_axis(self.axis, table.rank)
        expect_dtype("indices", indices, INTEGERS, "an integer")
        if not 0 <= self.batch_dims <= min(axis, indices.rank):
            raise AxisError(f"batch_dims must be 0..{min(axis, indices.rank)} (axis {axis}), not {self.batch_dims}")
        for k in range(self.batch_dims):
            if not same_dim(table.shape[k], indices.shape[k]):
                raise ShapeError(f"batch axis {k} differs ({table.shape[k]} != {indices.shape[k]})")
        return axis

    def _read_shape(self, table: TensorType, indices: TensorType) -> Shape:
        """Return the dims of the elements read from (or written to) the table."""
        axis = self._place(table, indices)
        return (*table.shape[:axis], *indices.shape[self.batch_dims :], *table.shape[axis + 1 :])

    def _lift(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> tuple[Op, list[Value]]:
        """Return the op and operands over a new leading axis; the indices are operand -1.

        Shared indices of an op without batch axes stay shared; otherwise the new axis joins the batch axes.
        """
        rank = x[0].ndim - is_batched[0]
        op: Any = self  # the fields belong to the ops, not to this base
        axis = normalize_axis(self.axis, self._table_rank(rank, x[-1].ndim - is_batched[-1])) + 1
        if not is_batched[-1] and self.batch_dims == 0:
            return evolve(op, axis=axis), [*all_batched(size, x[:-1], is_batched[:-1]), x[-1]]
        return evolve(op, axis=axis, batch_dims=self.batch_dims + 1), all_batched(size, x, is_batched)

    def _table_rank(self, rank: int, index_rank: int) -> int:
        return rank

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        op, operands = self._lift(size, x, is_batched)
        return op(*operands)


def _by_batch(x: np.ndarray, batch: int, axis: int, count: int) -> np.ndarray:
    """Return `x` as [batch, outer, `count` axes merged, inner]."""
    shape = x.shape
    flat = [shape[:batch], shape[batch:axis], shape[axis : axis + count], shape[axis + count :]]
    return x.reshape([int(np.prod(part, dtype=np.int64)) for part in flat])


@define_op
class Gather(Indexed):
    """Elements of one axis, selected by indices: y[b.., o.., i.., n..] = table[b.., o.., indices[b.., i..], n..].

    Shapes:
        table: [b.., o.., n, ..]    indices: [b.., i..]    ->    y: [b.., o.., i.., ..]

    Attributes:
        axis: The axis that is indexed.
        batch_dims: The number of leading axes `b..` that the two operands share.
        oob: "error", "clip" or "fill", for indices outside the axis.
        fill: The value read by "fill".

    Raises:
        AxisError, ShapeError, DtypeError: Axis, batch axes or the dtype of the indices do not fit.
        IndexRangeError (at run time): An index is outside the axis and `oob` is "error".
    """

    axis: int = 0
    batch_dims: int = 0
    oob: OutOfBounds = "error"
    fill: complex = 0

    def infer(self, table: TensorType, indices: TensorType) -> TensorType:
        return table.with_shape(self._read_shape(table, indices))

    def reference(self, table: np.ndarray, indices: np.ndarray) -> np.ndarray:
        axis = normalize_axis(self.axis, table.ndim)
        batch = self.batch_dims
        safe, inside = checked_indices("gather", indices, table.shape[axis], self.oob)
        shape = (*table.shape[:axis], *indices.shape[batch:], *table.shape[axis + 1 :])
        if 0 in shape:
            return np.zeros(shape, table.dtype)
        if table.shape[axis] == 0:
            return np.full(shape, self.fill, table.dtype)
        cells = _by_batch(table, batch, axis, 1)
        rows = safe.reshape(cells.shape[0], -1)
        read = cells[np.arange(cells.shape[0])[:, None], :, rows]
        if self.oob == "fill":
            read = np.where(inside.reshape(rows.shape)[:, :, None, None], read, np.asarray(self.fill, table.dtype))
        return read.transpose(0, 2, 1, 3).reshape(shape)

    def vjp(self, g: Value, table: Value, indices: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        axis = normalize_axis(self.axis, table.ndim)
        back = ScatterAdd(axis=axis, batch_dims=self.batch_dims, size=table.shape[axis], oob=self.oob)
        return back(g, indices), ZERO

    def jvp(self, t: Sequence[Any], table: Value, indices: Value, *, y: Value) -> Any:
        return evolve(self, fill=0)(t[0], indices)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        if not is_batched[0] and self.batch_dims == 0:
            # One table for every element: the new axis is a further index axis, and moves to the front.
            axis = normalize_axis(self.axis, x[0].ndim)
            read = self(*x)
            return transpose(read, (axis, *(i for i in range(read.ndim) if i != axis)))
        return Indexed.batch(self, size, x, is_batched)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def ids(high: int) -> dict[str, tuple[float, float]]:
            return {"indices": (0, high)}

        for d in ALL:
            yield Sample(f"{d}[4, 3]", "i64[2, 5]", ranges=ids(3))
        for d in INTEGERS:
            yield Sample("f32[4, 3]", f"{d}[6]", ranges=ids(3))
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f32[3, 4, 5, 6]", "i32[2, 3]", axis=axis, ranges=ids(2))
        yield Sample("f32[2, 3, 4]", "i64[2, 5]", axis=1, batch_dims=1, ranges=ids(2))
        yield Sample("f32[2, 3, 4, 5]", "i64[2, 3]", axis=2, batch_dims=2, ranges=ids(3))
        yield Sample("f32[2, 3, 4]", "i64[2]", axis=2, batch_dims=1, ranges=ids(3))
        yield Sample("f32[4]", "i64[]", ranges=ids(3))
        yield Sample("f32[4, 2]", "i64[0]", ranges=ids(3))
        yield Sample("f32[0, 2]", "i64[0]", ranges=ids(3))
        yield Sample("f32[4, 2]", "i64[7]", oob="clip", ranges={"indices": (-3, 6)})
        yield Sample("f32[4, 2]", "i64[7]", oob="fill", fill=1.5, ranges={"indices": (-3, 6)})
        yield Sample("c64[4, 2]", "i64[7]", oob="fill", fill=1.5 - 0.5j, ranges={"indices": (-3, 6)})
        yield Sample("f32[2, 3, 2]", "i64[2, 4]", axis=1, batch_dims=1, oob="fill", ranges={"indices": (-2, 4)})
        yield Rejected("f32[4]", "f32[2]", error=DtypeError, says="integer")
        yield Rejected("f32[4]", "i64[2]", axis=1, error=AxisError, says="outside")
        yield Rejected("f32[2, 4]", "i64[3, 2]", axis=1, batch_dims=1, error=ShapeError, says="2 != 3")
        yield Rejected("f32[2, 4]", "i64[2]", axis=0, batch_dims=1, error=AxisError, says="batch_dims")
        yield Rejected("f32[4]", "i64[2]", oob="wrap", error=ConfigError, says="oob")


gather = op_function(Gather)


@define_op
class ScatterAdd(Indexed):
    """Updates added into zeros at indices: the transpose of `Gather`. All duplicates accumulate, in index order.

    Shapes:
        updates: [b.., o.., i.., ..]    indices: [b.., i..]    ->    y: [b.., o.., size, ..]

    Attributes:
        axis, batch_dims, oob: As for `Gather`; "fill" drops updates out of range.
        size: The size of the indexed axis of the result.
    """

    size: Dim
    axis: int = 0
    batch_dims: int = 0
    oob: OutOfBounds = "error"
    cost = per_element(1)

    def infer(self, updates: TensorType, indices: TensorType) -> TensorType:
        if not updates.dtype.is_numeric:
            raise DtypeError("updates must be numeric, not bool")
        count = indices.rank - self.batch_dims
        rank = self._table_rank(updates.rank, indices.rank)
        axis = normalize_axis(self.axis, rank)
        table = updates.with_shape((*updates.shape[:axis], self.size, *updates.shape[axis + count :]))
        expect_shape("updates", updates, self._read_shape(table, indices))
        return table

    def _table_rank(self, rank: int, index_rank: int) -> int:
        # The updates have `i..` index axes where the table has one.
        return max(rank - (index_rank - self.batch_dims) + 1, 1)

    def reference(self, updates: np.ndarray, indices: np.ndarray) -> np.ndarray:
        batch, count, size = self.batch_dims, indices.ndim - self.batch_dims, self.size.__index__()
        axis = normalize_axis(self.axis, self._table_rank(updates.ndim, indices.ndim))
        safe, inside = checked_indices("scatter_add", indices, size, self.oob)
        shape = (*updates.shape[:axis], size, *updates.shape[axis + count :])
        out = np.zeros(shape, updates.dtype)
        write_cells(np.add, out, updates, safe, inside | (self.oob != "fill"), axis, batch)
        return out

    def vjp(self, g: Value, updates: Value, indices: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        axis = normalize_axis(self.axis, g.ndim)
        return gather(g, indices, axis=axis, batch_dims=self.batch_dims, oob=self.oob), ZERO

    def jvp(self, t: Sequence[Any], updates: Value, indices: Value, *, y: Value) -> Any:
        return self(t[0], indices)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        def ids(high: int) -> dict[str, tuple[float, float]]:
            return {"indices": (0, high)}

        for d in ALL:
            if d.is_numeric:
                yield Sample(f"{d}[2, 5, 3]", "i64[2, 5]", size=4, ranges=ids(3))
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f32[3, 4, 5, 6]", f"i32[{(3, 4, 5, 6)[axis]}]", axis=axis, size=3, ranges=ids(2))
        yield Sample("f32[2, 5, 4]", "i64[2, 5]", axis=1, batch_dims=1, size=3, ranges=ids(2))
        yield Sample("f32[2, 3, 5]", "u8[2, 5]", axis=2, batch_dims=1, size=4, ranges=ids(3))
        yield Sample("f32[2, 3, 5]", "i64[2, 3, 5]", axis=2, batch_dims=2, size=4, ranges=ids(3))
        yield Sample("f32[3]", "i64[]", size=4, ranges=ids(3))
        yield Sample("f32[0, 3]", "i64[0]", size=2, ranges=ids(1))
        yield Sample("f32[7, 2]", "i64[7]", size=4, oob="clip", ranges={"indices": (-3, 6)})
        yield Sample("f32[7, 2]", "i64[7]", size=4, oob="fill", ranges={"indices": (-3, 6)})
        yield Rejected("f32[5, 2]", "i64[4]", size=3, error=ShapeError, says="updates must be [4, 2]")
        yield Rejected("bool[4]", "i64[4]", size=3, error=DtypeError, says="numeric")
        yield Rejected("f32[4]", "f32[4]", size=3, error=DtypeError, says="integer")


scatter_add = op_function(ScatterAdd)


def write_cells(
    combine: np.ufunc | None,
    out: np.ndarray,
    updates: np.ndarray,
    indices: np.ndarray,
    is_written: np.ndarray,
    axis: int,
    batch: int,
) -> None:
    """Combine updates into `out` at indices along `axis`, in index order; without `combine` the last one stays."""
    if 0 in out.shape or 0 in updates.shape:
        return
    cells = _by_batch(out, batch, axis, 1)
    new = _by_batch(updates, batch, axis, indices.ndim - batch).transpose(0, 2, 1, 3)
    rows = indices.reshape(cells.shape[0], -1)
    b, i = np.nonzero(np.broadcast_to(is_written, indices.shape).reshape(rows.shape))
    target: Any = (b, slice(None), rows[b, i])
    if combine is None:
        cells[target] = new[b, i]
    else:
        combine.at(cells, target, new[b, i])
    assert np.shares_memory(cells, out), "a dense array is reshaped without a copy"

"""Reads and writes at index tuples: the indexed axes are merged into one, and the tuples into one linear index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, is_static, product
from rlx_core.ir.dtypes import INTEGERS, bf16, bool_, c64, f32, f64, i64, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_dtype_of, expect_rank, expect_shape, same_dim
from rlx_core.ops.arithmetic import maximum, minimum
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import dim_value, zeros
from rlx_core.ops.indexing import OutOfBounds, gather
from rlx_core.ops.kinds import promoted
from rlx_core.ops.movement import narrow
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.scatter import Scatter, ScatterMode
from rlx_core.ops.selection import where
from rlx_core.ops.structural import reshape


def _size(size: Dim) -> Any:
    return size if is_static(size) else dim_value(size=size)


def linear_index(coordinates: Sequence[Any], sizes: Sequence[Dim], oob: OutOfBounds = "error") -> Any:
    """Return one index into the merged axes of `sizes`, from an index into each.

    A tuple with a part outside its axis becomes -1, which is always out of range, unless `oob` is "clip": then each part is
    clamped to its axis.
    """
    total: Any = 0
    # As a signed number an index of 2⁶³ or more would be negative, and be clamped to the first element.
    largest = np.uint64(np.iinfo(np.int64).max)
    parts = [cast(minimum(c, largest) if c.dtype is u64 else c, to=i64) for c in coordinates]
    if oob == "clip":
        parts = [minimum(maximum(c, 0), _size(n) - 1) for c, n in zip(parts, sizes, strict=True)]
    for k, part in enumerate(parts):
        stride = product(sizes[k + 1 :])
        total = total + (part if stride == 1 else part * _size(stride))
    if oob != "clip":
        for part, n in zip(parts, sizes, strict=True):
            total = where(part >= 0, where(part < _size(n), total, -1), -1)
    return total


def _indexed_axes(table: TensorType, indices: TensorType, batch: int) -> int:
    """Return the number of axes that each tuple indexes, after checking that both types fit."""
    expect_dtype("indices", indices, INTEGERS, "an integer")
    expect_rank("indices", indices, 1)
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise ShapeError(f"indices must have a known last dim, not {depth}")
    if not 0 <= batch < indices.rank:
        raise AxisError(f"batch_dims must be 0..{indices.rank - 1}, not {batch}")
    if batch + depth > table.rank:
        raise ShapeError(f"tuples of {depth} after {batch} batch axes index more than the {table.rank} axes of {table}")
    for k in range(batch):
        if not same_dim(table.shape[k], indices.shape[k]):
            raise ShapeError(f"batch axis {k} differs ({table.shape[k]} != {indices.shape[k]})")
    return depth


def _flattened(x: Value, indices: Value, batch: int, oob: OutOfBounds) -> tuple[Value, Value]:
    """Return `x` with its indexed axes merged, and the tuples as indices into the merged axis."""
    depth = indices.shape[-1]
    assert isinstance(depth, int), "inference has checked this"
    sizes = x.shape[batch : batch + depth]
    flat = reshape(x, (*x.shape[:batch], product(sizes), *x.shape[batch + depth :]))
    outer = indices.shape[:-1]
    parts = [reshape(narrow(indices, axis=-1, start=k, length=1), outer) for k in range(depth)]
    return flat, linear_index(parts, sizes, oob) if parts else zeros(outer, i64)


@define_op
class GatherND(Op):
    """Elements, or slices, selected by index tuples: y[b.., i.., ..] = x[b.., *indices[b.., i.., :], ..].

    Shapes:
        x: [b.., n_1, .., n_r, ..]    indices: [b.., i.., r]    ->    y: [b.., i.., ..]

    Attributes:
        batch_dims: The number of leading axes `b..` that the two operands share.
        oob: A tuple with any part out of range is out of range; "clip" clips each part, "fill" reads 0.
    """

    batch_dims: int = 0
    oob: OutOfBounds = "error"
    category: ClassVar = "movement"

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        depth = _indexed_axes(x, indices, self.batch_dims)
        return x.with_shape((*indices.shape[:-1], *x.shape[self.batch_dims + depth :]))

    def decompose(self, x: Value, indices: Value) -> Value:
        flat, linear = _flattened(x, indices, self.batch_dims, self.oob)
        return gather(flat, linear, axis=self.batch_dims, batch_dims=self.batch_dims, oob=self.oob)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        ids = {"indices": (0, 2)}
        for d in (f32, f64, bf16, i64, bool_, c64):
            yield Sample(f"{d}[3, 4, 2]", "i64[5, 2]", ranges=ids)
        yield Sample("f32[3, 4, 5]", "u8[2, 4, 3]", ranges=ids)
        yield Sample("f32[3, 4]", "i32[2]", ranges=ids)
        yield Sample("f32[3, 4]", "i32[2, 0]")
        yield Sample("f32[2, 3, 4, 5]", "i64[2, 6, 2]", batch_dims=1, ranges=ids)
        yield Sample("f32[3, 4]", "i64[6, 2]", oob="clip", ranges={"indices": (-2, 6)})
        yield Sample("f32[3, 4]", "i64[6, 2]", oob="fill", ranges={"indices": (-2, 6)})
        yield Rejected("f32[3]", "i64[4, 2]", error=ShapeError, says="tuples of 2")
        yield Rejected("f32[3, 2]", "i64[2, 1]", batch_dims=1, error=ShapeError, says="3 != 2")
        yield Rejected("f32[3]", "f32[4, 1]", error=DtypeError, says="integer")


@define_op
class ScatterND(Op):
    """`x` with updates written at index tuples: x[b.., *indices[b.., i.., :], ..] = updates[b.., i.., ..].

    Shapes:
        x: [b.., n_1, .., n_r, ..]    indices: [b.., i.., r]    updates: [b.., i.., ..]    ->    y: dims of x

    Attributes:
        mode: "set" (the last update wins), "add", "mul", "max" or "min".
        batch_dims, oob: As for `GatherND`; "fill" writes nothing outside.
    """

    mode: ScatterMode = "set"
    batch_dims: int = 0
    oob: OutOfBounds = "error"
    category: ClassVar = "movement"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        depth = _indexed_axes(x, indices, self.batch_dims)
        expect_shape("updates", updates, (*indices.shape[:-1], *x.shape[self.batch_dims + depth :]))
        expect_dtype_of("updates", updates, "x", x)
        return x

    def prepare(self, x: Value, indices: Value, updates: Value) -> tuple[Value | None, ...]:
        target, new = promoted(x, updates)
        return target, indices, new

    def decompose(self, x: Value, indices: Value, updates: Value) -> Value:
        flat, linear = _flattened(x, indices, self.batch_dims, self.oob)
        written = Scatter(self.mode, self.batch_dims, self.batch_dims, self.oob)(flat, updates, linear)
        return reshape(written, x.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        ids = {"indices": (0, 2)}
        for d in (f32, f64, bf16, i64, bool_, c64):
            yield Sample(f"{d}[3, 4, 2]", "i64[5, 2]", f"{d}[5, 2]", ranges=ids)
        for mode in ("set", "add", "mul", "max", "min"):
            yield Sample("f32[3, 4]", "i64[7, 2]", "f32[7]", mode=mode, ranges=ids)
            yield Sample("f32[2, 3, 4]", "i64[2, 5, 1]", "f32[2, 5, 4]", mode=mode, batch_dims=1, ranges=ids)
        yield Sample("f32[3, 4]", "i64[6, 2]", "f32[6]", oob="fill", ranges={"indices": (-2, 6)})
        yield Rejected("f32[3, 4]", "i64[6, 2]", "f32[6, 4]", error=ShapeError, says="updates must be [6]")


gather_nd, scatter_nd = op_function(GatherND), op_function(ScatterND)

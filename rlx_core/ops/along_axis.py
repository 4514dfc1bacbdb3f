"""One index per element: reads and writes whose indices have the dims of the data except along one axis.

The indexed axis is moved to the end and all others become batch axes, so these ops are lowered to `Gather` and `Scatter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import ALL, INTEGERS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import (
    TensorType,
    expect_dtype,
    expect_dtype_of,
    expect_rank,
    expect_shape,
    normalize_axis,
    same_dim,
)
from rlx_core.ops.indexing import OutOfBounds, gather, scatter_add
from rlx_core.ops.kinds import promoted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.scatter import Scatter, ScatterMode
from rlx_core.ops.structural import transpose


def move_axis(x: Value, source: int, target: int) -> Value:
    """Return `x` with one axis moved; both positions are counted from the front."""
    if source == target:
        return x
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target, source)
    return transpose(x, perm=tuple(order))


def _expect_same_dims(x: TensorType, indices: TensorType, axis: int) -> int:
    expect_dtype("indices", indices, INTEGERS, "an integer")
    expect_rank("indices", indices, x.rank, x.rank)
    place = normalize_axis(axis, x.rank)
    for k, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if k != place and not same_dim(a, b):
            raise ShapeError(f"axis {k} differs ({a} != {b})")
    return place


@define_op
class TakeAlongAxis(Op):
    """y[.., i, ..] = x[.., indices[.., i, ..], ..]: one index for every element of the result.

    Shapes:
        x: [.., n, ..]    indices: [.., m, ..]    ->    y: [.., m, ..]; all dims but the axis equal
    """

    axis: int
    oob: OutOfBounds = "error"
    category: ClassVar = "movement"

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        _expect_same_dims(x, indices, self.axis)
        return x.with_shape(indices.shape)

    def decompose(self, x: Value, indices: Value) -> Value:
        axis, last = normalize_axis(self.axis, x.ndim), x.ndim - 1
        read = gather(
            move_axis(x, axis, last), move_axis(indices, axis, last), axis=last, batch_dims=last, oob=self.oob
        )
        return move_axis(read, last, axis)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 4]", "i64[2, 3]", axis=1, ranges={"indices": (0, 3)})
        for axis in (0, 1, 2, 3, -1):
            dims = [3, 4, 5, 6]
            dims[axis] = 2
            shape = ", ".join(map(str, dims))
            yield Sample("f32[3, 4, 5, 6]", f"i32[{shape}]", axis=axis, ranges={"indices": (0, 2)})
        yield Sample("f32[3]", "i64[0]", axis=0)
        yield Sample("f32[3, 2]", "i64[5, 2]", axis=0, oob="clip", ranges={"indices": (-2, 5)})
        yield Rejected("f32[2, 3]", "i64[3, 3]", axis=1, error=ShapeError, says="2 != 3")
        yield Rejected("f32[2, 3]", "i64[3]", axis=1, error=ShapeError, says="2 axes")
        yield Rejected("f32[2]", "f32[2]", axis=0, error=DtypeError, says="integer")


take_along_axis = op_function(TakeAlongAxis)


def add_along_axis(updates: Value, indices: Value, axis: int, size: Dim) -> Value:
    """Return zeros with updates added at one index each: the transpose of `TakeAlongAxis`."""
    last = updates.ndim - 1
    place = normalize_axis(axis, updates.ndim)
    summed = scatter_add(
        move_axis(updates, place, last), move_axis(indices, place, last), axis=last, batch_dims=last, size=size
    )
    return move_axis(summed, last, place)


@define_op
class PutAlongAxis(Op):
    """`x` with one update written at each index: x[.., indices[.., i, ..], ..] = updates[.., i, ..].

    Shapes:
        x: [.., n, ..]    indices, updates: [.., m, ..]    ->    y: dims of x

    Attributes:
        mode: "set" (the last update wins), "add", "mul", "max" or "min".
    """

    axis: int
    mode: ScatterMode = "set"
    oob: OutOfBounds = "error"
    category: ClassVar = "movement"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        _expect_same_dims(x, indices, self.axis)
        expect_shape("updates", updates, indices.shape)
        expect_dtype_of("updates", updates, "x", x)
        return x

    def prepare(self, x: Value, indices: Value, updates: Value) -> tuple[Value | None, ...]:
        target, new = promoted(x, updates)
        return target, indices, new

    def decompose(self, x: Value, indices: Value, updates: Value) -> Value:
        axis, last = normalize_axis(self.axis, x.ndim), x.ndim - 1
        moved = [move_axis(v, axis, last) for v in (x, updates, indices)]
        return move_axis(Scatter(self.mode, last, last, self.oob)(*moved), last, axis)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 4]", "i64[2, 3]", f"{d}[2, 3]", axis=1, ranges={"indices": (0, 3)})
        for axis in range(4):
            dims = [3, 4, 5, 6]
            dims[axis] = 2
            new = ", ".join(map(str, dims))
            for mode in ("set", "add", "mul"):
                ranges = {"indices": (0, 2)}
                yield Sample("f32[3, 4, 5, 6]", f"i32[{new}]", f"f32[{new}]", axis=axis, mode=mode, ranges=ranges)
        yield Rejected("f32[2, 3]", "i64[2, 1]", "f32[2, 2]", axis=1, error=ShapeError, says="updates must be [2, 1]")


put_along_axis = op_function(PutAlongAxis)

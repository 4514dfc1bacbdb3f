"""Windows at computed positions: slices and updates that start at index operands.

Starts are clamped so that the window always fits, also if a batch has a different start for each element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field

from rlx_core.errors import DtypeError, ShapeError, WrongInputCountError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product, require
from rlx_core.ir.dtypes import ALL, INTEGERS, i64, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_dtype_of, expect_shape
from rlx_core.ops.arithmetic import maximum, minimum
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import dim_value, full, iota, static, tangent_or_zeros, zeros_like
from rlx_core.ops.indexing import gather
from rlx_core.ops.kinds import promoted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.scatter import scatter
from rlx_core.ops.selection import where
from rlx_core.ops.structural import all_batched, as_shape, expand, reshape


def _check_starts(x: TensorType, starts: Sequence[TensorType]) -> None:
    if len(starts) != x.rank:
        raise WrongInputCountError(f"takes one start an axis ({x.rank}), not {len(starts)}")
    for k, start in enumerate(starts):
        expect_dtype(f"start {k}", start, INTEGERS, "an integer")
        expect_shape(f"start {k}", start, ())


def _check_window(x: TensorType, sizes: Shape) -> None:
    if len(sizes) != x.rank:
        raise ShapeError(f"the window has {len(sizes)} axes, x has {x.rank}")
    for axis, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        if not (require(">=", size, 0) and require(">=", n, size)):
            raise ShapeError(f"the window has {size} elements on axis {axis}, x has {n}")


def _window(x: np.ndarray, sizes: Sequence[int], starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    places = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(p, p + size) for p, size in zip(places, sizes, strict=True))


def _zero_start(starts: Sequence[Value]) -> Value:
    return full((), 0, starts[0].dtype if starts else i64)


def _first(start: Value, limit: Dim) -> Value:
    """Return a start clamped to 0..most, as i64."""
    last = dim_value(size=limit)
    inside = minimum(maximum(cast(start, to=i64), 0), last)
    # An unsigned start that is negative as an i64 is larger than every size.
    return where(start > np.uint64(np.iinfo(np.int64).max), last, inside) if start.dtype is u64 else inside


def _window_indices(shape: Shape, sizes: Shape, starts: Sequence[Value], batch: Dim) -> Value:
    """Return, for each batch element, the row-major positions of its window in a tensor of `shape`: i64[batch, window]."""
    total: Any = reshape(full((), 0, i64), (1,) * (1 + len(sizes)))
    for axis, (n, size, start) in enumerate(zip(shape, sizes, starts, strict=True)):
        place = _first(start, n - size)
        line = reshape(iota(axis=0, shape=(size,)), tuple(size if k == axis else 1 for k in range(len(sizes))))
        position = reshape(place, (batch, *(1,) * len(sizes))) + line
        total = total + position * dim_value(size=product(shape[axis + 1 :]))
    return reshape(expand(total, (batch, *sizes)), (batch, product(sizes)))


@define_op
class DynamicSlice(Op):
    """A window of fixed sizes that starts at index operands, one per axis, clamped so that it fits.

    Shapes:
        x: [n_1, ..]    starts: int[] each    ->    y: sizes
    """

    sizes: Shape = field(converter=as_shape)
    category: ClassVar = "movement"

    def infer(self, x: TensorType, *starts: TensorType) -> TensorType:
        _check_window(x, self.sizes)
        _check_starts(x, starts)
        return x.with_shape(self.sizes)

    def reference(self, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        return x[_window(x, static(self.sizes), starts)]

    def decompose(self, x: Value, *starts: Value) -> Value:
        for axis, (size, start) in enumerate(zip(self.sizes, starts, strict=True)):
            if size != x.shape[axis]:
                places = _first(start, x.shape[axis] - size) + iota(axis=0, shape=(size,))
                x = gather(x, places, axis=axis, oob="clip")
        return x

    def vjp(self, g: Value, x: Value, *starts: Value, y: Value) -> tuple[Value | Zero, ...]:
        return dynamic_update_slice(zeros_like(x), g, *starts), *(ZERO for _ in starts)

    def jvp(self, t: Sequence[Any], x: Value, *starts: Value, y: Value) -> Any:
        return self(t[0], *starts)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        table, starts = x[0], x[1:]
        if not any(is_batched[1:]):
            return evolve(self, sizes=(size, *self.sizes))(table, _zero_start(starts), *starts)
        table_shape = table.shape[1:] if is_batched[0] else table.shape
        where = _window_indices(table_shape, self.sizes, all_batched(size, starts, is_batched[1:]), size)
        if not is_batched[0]:
            return reshape(gather(reshape(table, (product(table_shape),)), where), (size, *self.sizes))
        flat = reshape(table, (size, product(table_shape)))
        return reshape(gather(flat, where, axis=1, batch_dims=1), (size, *self.sizes))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        starts = {"starts0": (-2, 5), "starts1": (-2, 5)}
        for d in ALL:
            yield Sample(f"{d}[4, 5]", "i64[]", "i64[]", sizes=(2, 3), ranges=starts)
        yield Sample("f32[4, 5]", "u8[]", "i32[]", sizes=(4, 1), ranges=starts)
        yield Sample("f32[5]", "i32[]", sizes=(0,))
        yield Sample("f32[]", sizes=())
        yield Rejected("f32[4]", "i64[]", sizes=(5,), error=ShapeError, says="x has 4")
        yield Rejected("f32[4]", sizes=(2,), error=WrongInputCountError, says="not 0")
        yield Rejected("f32[4]", "f32[]", sizes=(2,), error=DtypeError, says="integer")


dynamic_slice = op_function(DynamicSlice)


@define_op
class DynamicUpdateSlice(Op):
    """`x` with a window overwritten; the window starts at index operands, one per axis, clamped so that it fits.

    Shapes:
        x: [n_1, ..]    update: [m_1, ..]    starts: int[] each    ->    y: dims of x
    """

    category: ClassVar = "movement"

    def infer(self, x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
        expect_dtype_of("update", update, "x", x)
        _check_window(x, update.shape)
        _check_starts(x, starts)
        return x

    def prepare(self, x: Value, update: Value, *starts: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, update), *starts)

    def reference(self, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        out = np.array(x)
        out[_window(x, update.shape, starts)] = update
        return out

    def decompose(self, x: Value, update: Value, *starts: Value) -> Value:
        if any(size == 0 for size in update.shape):
            return x
        inside: Value | None = None
        for axis, (n, size, start) in enumerate(zip(x.shape, update.shape, starts, strict=True)):
            if size == n:
                continue
            place = iota(axis=0, shape=(n,)) - _first(start, n - size)
            update = gather(update, place, axis=axis, oob="clip")
            here = reshape(
                (place >= 0) & (place < dim_value(size=size)), tuple(n if k == axis else 1 for k in range(x.ndim))
            )
            inside = here if inside is None else inside & here
        return update if inside is None else where(inside, update, x)

    def vjp(self, g: Value, x: Value, update: Value, *starts: Value, y: Value) -> tuple[Value | Zero, ...]:
        outside = self(g, zeros_like(update), *starts)
        return outside, DynamicSlice(update.shape)(g, *starts), *(ZERO for _ in starts)

    def jvp(self, t: Sequence[Any], x: Value, update: Value, *starts: Value, y: Value) -> Any:
        return self(tangent_or_zeros(t[0], x), tangent_or_zeros(t[1], update), *starts)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        table, update = all_batched(size, x[:2], is_batched[:2])
        starts = x[2:]
        if not any(is_batched[2:]):
            return self(table, update, _zero_start(starts), *starts)
        table_shape, window = table.shape[1:], update.shape[1:]
        where = _window_indices(table_shape, window, all_batched(size, starts, is_batched[2:]), size)
        flat, new = reshape(table, (size, product(table_shape))), reshape(update, (size, product(window)))
        return reshape(scatter(flat, new, where, axis=1, batch_dims=1), table.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        starts = {"starts0": (-2, 5), "starts1": (-2, 5)}
        for d in ALL:
            yield Sample(f"{d}[4, 5]", f"{d}[2, 3]", "i64[]", "i64[]", ranges=starts)
        yield Sample("f32[4, 5]", "f32[4, 1]", "u8[]", "i32[]", ranges=starts)
        yield Sample("f32[5]", "f32[0]", "i32[]")
        yield Sample("f32[]", "f32[]")
        yield Rejected("f32[4]", "f32[5]", "i64[]", error=ShapeError, says="x has 4")
        yield Rejected("f32[4]", "f32[2]", error=WrongInputCountError, says="not 0")


dynamic_update_slice = op_function(DynamicUpdateSlice)

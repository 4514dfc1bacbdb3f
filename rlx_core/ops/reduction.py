"""Reductions over a set of axes: means, extremes, products, counts, positions of extremes, moments.

All share two attributes: `axes` (an empty tuple is the identity) and `keep_dim`. Over an axis of size 0 a reduction gives its
identity; the extremes have none, so they refuse a size known to be 0 and guard one that is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import product, require
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, INTEGERS, DType, bool_, f32, f64, i32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Zero, define_op
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ir.types import TensorType, expect_dtype, normalize_axes
from rlx_core.ops.creation import size_scalar
from rlx_core.ops.selection import where
from rlx_core.ops.structural import Reduction, cast, expand_reduced, sum_axes

_ORDERED = (*INTEGERS, *FLOATS, bool_)


def widened(x: Value) -> Value:
    """`x` in the dtype in which its sums are held: f16 and bf16 become f32."""
    return x if x.dtype.accumulator is x.dtype else cast(x, to=x.dtype.accumulator)


def rounded(x: Value, to: DType) -> Value:
    """A widened result, rounded once."""
    return x if x.dtype is to else cast(x, to=to)


def reduction_samples(dtypes: Sequence[DType], **settings: Any) -> Iterator[Sample | Rejected]:
    """Every dtype, every axis of rank 4, several axes, rank 0, and the axes that are refused."""
    for d in dtypes:
        yield Sample(f"{d}[2, 3, 4]", axes=(1,), **settings)
    main = f32 if f32 in dtypes else dtypes[0]
    for axis in range(4):
        yield Sample(f"{main}[2, 3, 4, 5]", axes=(axis,), **settings)
    yield Sample(f"{main}[2, 3, 4]", axes=(0, -1), keep_dim=True, **settings)
    yield Sample(f"{main}[2, 3]", axes=(0, 1), **settings)
    yield Sample(f"{main}[2, 3]", axes=(), **settings)
    yield Sample(f"{main}[]", axes=(), **settings)
    yield Sample(f"{main}[0, 3]", axes=(1,), **settings)
    yield Rejected(f"{main}[2, 3]", axes=(2,), error=AxisError, says="outside")
    yield Rejected(f"{main}[2, 3]", axes=(0, -2), error=AxisError, says="twice")


def _expect_elements(op: Reduction, x: TensorType) -> None:
    for axis, size in zip(normalize_axes(op.axes, x.rank), op.sizes(x), strict=True):
        if not require(">", size, 0):
            raise ShapeError(f"axis {axis} of {x} has 0 elements, and an extreme needs 1")


@define_op
class Mean(Reduction):
    """The mean over `axes`; NaN over no element.

    f16 and bf16 accumulate in f32. Integers are averaged in f32, 64-bit ones in f64.

    Shapes:
        x: [.., n, ..]    ->    y: the listed axes dropped, or 1 with keep_dim
    """

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, (*FLOATS, *COMPLEXES), "float or complex")
        return self.reduced(x)

    def prepare(self, x: Value) -> Value:
        if x.dtype.is_differentiable:
            return x
        return cast(x, to=f64 if x.dtype.itemsize == 8 else f32)

    def reference(self, x: np.ndarray) -> np.ndarray:
        axes = normalize_axes(self.axes, x.ndim)
        count = np.prod([x.shape[a] for a in axes], dtype=np.int64)
        return np.sum(x, axis=axes, keepdims=self.keep_dim) / np.asarray(count, x.real.dtype)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        # The count is held wide: 100 000 elements are infinitely many in f16.
        wide = widened(g)
        share = rounded(wide / size_scalar(product(self.sizes(x.type)), wide.dtype), g.dtype)
        return (expand_reduced(share, x.type, self.axes),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value | Zero:
        return ZERO if isinstance(t[0], Zero) else self(t[0])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples((*FLOATS, *COMPLEXES))
        for d in (i32, i64, bool_):
            yield Sample(f"{d}[2, 3]", axes=(0,))


class Extreme(Reduction):
    """The largest or smallest element: ties share the derivative evenly, NaN wins."""

    combine: ClassVar[np.ufunc]

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, _ORDERED, "real or bool")
        _expect_elements(self, x)
        return self.reduced(x)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return type(self).combine.reduce(x, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim)

    def _shares(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Which elements equal the result, and how many do (held wide)."""
        is_extreme = x == expand_reduced(y, x.type, self.axes)
        return is_extreme, sum_axes(cast(is_extreme, to=x.dtype.accumulator), axes=self.axes, keep_dim=self.keep_dim)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        if not x.dtype.is_differentiable:
            return (ZERO,)
        is_extreme, count = self._shares(x, y)
        share = rounded(widened(g) / count, g.dtype)
        return (where(is_extreme, expand_reduced(share, x.type, self.axes), 0),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value | Zero:
        if isinstance(t[0], Zero) or not x.dtype.is_differentiable:
            return ZERO
        is_extreme, count = self._shares(x, y)
        total = sum_axes(widened(where(is_extreme, t[0], 0)), axes=self.axes, keep_dim=self.keep_dim)
        return rounded(total / count, t[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(_ORDERED)
        yield Sample("f64[3, 4]", axes=(1,), make=lambda rng: [np.round(rng.uniform(-1, 1, (3, 4)))], is_smooth=False)
        yield Rejected("f32[2, 0]", axes=(1,), error=ShapeError, says="0 elements")
        yield Rejected("c64[2]", axes=(0,), error=DtypeError, says="real")


@define_op
class Max(Extreme):
    """The largest element over `axes`; NaN propagates, ties share the derivative evenly."""

    combine: ClassVar = np.maximum


@define_op
class Min(Extreme):
    """The smallest element over `axes`; NaN propagates, ties share the derivative evenly."""

    combine: ClassVar = np.minimum


mean_axes, max_axes, min_axes = op_function(Mean), op_function(Max), op_function(Min)
OPS = (Mean, Max, Min)

"""Reductions to truth values, counts and positions: their results are integers and bools, without derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import require
from rlx_core.ir.dtypes import ALL, DType, bool_, i32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, normalize_axes, normalize_axis
from rlx_core.ops.conversion import cast, per_element, zero_jvp, zero_vjp
from rlx_core.ops.reduction import reduction_samples
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.sorting import ORDERED, expect_index_dtype
from rlx_core.ops.structural import Reduction, along_axis_batch, sum_axes
from rlx_core.system.records import frozen


class Count(Reduction):
    """A reduction of `x != 0`; NaN is not 0."""

    result: ClassVar[DType] = bool_

    def infer(self, x: TensorType) -> TensorType:
        return self.reduced(x).with_dtype(type(self).result)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(ALL)
        yield Sample("f32[4]", axes=(0,), make=lambda rng: [np.array([0.0, -0.0, np.nan, 1.0])], is_smooth=False)
        yield Sample("i32[2, 3]", axes=(1,), low=0, high=1)


@define_op
class CountNonzero(Count):
    """The number of elements over `axes` that are not 0, as i64."""

    result: ClassVar = i64

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.count_nonzero(x, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim))

    def decompose(self, x: Value) -> Value:
        return sum_axes(cast(x, to=bool_), axes=self.axes, keep_dim=self.keep_dim)


@define_op(name="any")
class AnyTrue(Count):
    """Whether any element over `axes` is not 0; false over an empty axis."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.any(x != 0, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim))

    def decompose(self, x: Value) -> Value:
        return CountNonzero(self.axes, self.keep_dim)(x) > 0


@define_op(name="all")
class AllTrue(Count):
    """Whether all elements over `axes` are not 0; true over an empty axis."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.all(x != 0, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim))

    def decompose(self, x: Value) -> Value:
        return CountNonzero(self.axes, self.keep_dim)(~cast(x, to=bool_)) == 0


count_nonzero, any_axes, all_axes = op_function(CountNonzero), op_function(AnyTrue), op_function(AllTrue)


@frozen(slots=False)
class ArgExtreme(Op):
    """The position of an extreme along one axis: the first one, where NaN is extreme."""

    axis: int
    keep_dim: bool = False
    index_dtype: DType = i64
    category: ClassVar = "reduction"
    find: ClassVar[Any]
    vjp = zero_vjp
    jvp = zero_jvp
    cost = per_element(1)

    def infer(self, x: TensorType) -> TensorType:
        axis = normalize_axis(self.axis, x.rank)
        expect_dtype("x", x, ORDERED, "real or bool")
        expect_index_dtype(self.index_dtype)
        if not require(">", x.shape[axis], 0):
            raise ShapeError(f"axis {axis} of {x} has 0 elements, and an extreme needs 1")
        unit_axis = (1,) if self.keep_dim else ()
        return TensorType(self.index_dtype, (*x.shape[:axis], *unit_axis, *x.shape[axis + 1 :]))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(type(self).find(x, axis=self.axis, keepdims=self.keep_dim))

    batch = along_axis_batch

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ORDERED:
            yield Sample(f"{d}[3, 5]", axis=1)
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f32[2, 3, 4, 5]", axis=axis, keep_dim=axis % 2 == 1)
        yield Sample("f64[5]", axis=0, make=lambda rng: [np.array([1.0, np.nan, 3.0, np.nan, 3.0])], is_smooth=False)
        yield Sample("i64[4]", axis=0, low=2**53, high=2**53 + 2, index_dtype=i32)
        yield Sample("f32[0, 3]", axis=1)
        yield Rejected("f32[3, 0]", axis=1, error=ShapeError, says="0 elements")
        yield Rejected("f32[]", axis=0, error=AxisError, says="outside")
        yield Rejected("c64[3]", axis=0, error=DtypeError, says="real")


@define_op
class ArgMax(ArgExtreme):
    """The position of the largest element of an axis: the first one, where NaN is extreme.

    Attributes:
        axis: The axis that is searched.
        keep_dim: Keep it with size 1.
        index_dtype: i64 or i32.
    """

    find: ClassVar = staticmethod(np.argmax)


@define_op
class ArgMin(ArgExtreme):
    """The position of the smallest element of an axis: the first one, where NaN is extreme.

    Attributes:
        axis: The axis that is searched.
        keep_dim: Keep it with size 1.
        index_dtype: i64 or i32.
    """

    find: ClassVar = staticmethod(np.argmin)


arg_max, arg_min = op_function(ArgMax), op_function(ArgMin)

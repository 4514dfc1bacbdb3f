"""Softmax and its logarithm along one axis, shifted by the maximum to avoid overflow.

A row in which every element is -inf has no distribution. The attribute `empty_row` selects its value: NaN, as the formula
gives, or a row of zeros, which attention uses for a query that sees no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rlx_core.errors import AxisError, DtypeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, normalize_axis
from rlx_core.ops.activation import exp, log
from rlx_core.ops.conversion import as_dtype, per_element
from rlx_core.ops.reduction import max_axes
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import along_axis_batch, sum_axes
from rlx_core.system.records import frozen

EmptyRow = Literal["nan", "zero"]


def row_max(x: Value, axis: int) -> Value:
    """Return the maximum along an axis, kept with size 1, by which a row is shifted.

    Its derivative cancels in every function that is invariant under shifts; the rules below do not use it.
    """
    return max_axes(x, axes=(axis,), keep_dim=True)


def row_sum(x: Value, axis: int) -> Value:
    """Return the sum along an axis, kept with size 1."""
    return sum_axes(x, axes=(axis,), keep_dim=True)


@frozen(slots=False)
class RowOp(Op):
    """Base of softmax and its logarithm: the row axis, float operands, and batching."""

    category: ClassVar = "boundary"
    axis: int = -1

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        normalize_axis(self.axis, x.rank)
        return x

    batch = along_axis_batch


@define_op
class Softmax(RowOp):
    """The exponentials of a row over their sum: `y = exp(x - max x) / Σ exp(x - max x)`.

    f16 and bf16 compute in f32 and round once.

    Attributes:
        axis: The axis that sums to 1.
        empty_row: "nan" or "zero", for a row of -inf only.
    """

    empty_row: EmptyRow = "nan"
    cost = per_element(5)

    def decompose(self, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        if x.shape[axis] == 0:
            return x
        data = wide(x)
        shift = row_max(data, axis)
        if self.empty_row == "zero":
            # The operands are replaced, not the result: -inf - -inf and 0 / 0 are NaN in every derivative too.
            shift = where(shift == -np.inf, 0, shift)
        weights = exp(data - shift)
        total = row_sum(weights, axis)
        if self.empty_row == "zero":
            total = where(total == 0, 1, total)
        return as_dtype(weights / total, x.dtype)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (self._project(g, y),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return self._project(t[0], y)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 5]")
        for axis in (0, 1, 2, 3, -2):
            yield Sample("f32[2, 3, 4, 5]", axis=axis)
        yield Sample("f32[2, 0]")
        yield Sample("f32[0, 2]")
        yield Sample("f64[2, 3]", empty_row="zero")
        yield Sample("f64[3, 4]", empty_row="zero", make=rows_partly_hidden, is_smooth=False)
        yield Sample("f32[3]", low=-300.0, high=300.0)
        yield Rejected("f32[3]", axis=1, error=AxisError, says="outside")
        yield Rejected("i32[3]", error=DtypeError, says="x must be float")

    def _project(self, t: Value, y: Value) -> Value:
        """Return `y·(t - Σ y·t)`: the derivative is symmetric, so both modes use it."""
        axis = normalize_axis(self.axis, y.ndim)
        p, v = wide(y), wide(t)
        return as_dtype(p * (v - row_sum(p * v, axis)), y.dtype)


def rows_partly_hidden(rng: np.random.Generator) -> list[np.ndarray]:
    """Return three rows of four: one complete, one with some elements hidden, one with all hidden."""
    x = rng.uniform(-2, 2, (3, 4))
    x[1, :2], x[2] = -np.inf, -np.inf
    return [x]


softmax = op_function(Softmax)


@define_op
class LogSoftmax(RowOp):
    """The logarithm of softmax, without underflow: `y = x - max x - log Σ exp(x - max x)`.

    Attributes:
        axis: The axis whose exponentials sum to 1.
    """

    cost = per_element(6)

    def decompose(self, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        if x.shape[axis] == 0:
            return x
        data = wide(x)
        shifted = data - row_max(data, axis)
        return as_dtype(shifted - log(row_sum(exp(shifted), axis)), x.dtype)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, y.ndim)
        return (as_dtype(wide(g) - exp(wide(y)) * row_sum(wide(g), axis), x.dtype),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        axis = normalize_axis(self.axis, y.ndim)
        return as_dtype(wide(t[0]) - row_sum(exp(wide(y)) * wide(t[0]), axis), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 5]")
        for axis in (0, 1, 2, 3, -2):
            yield Sample("f32[2, 3, 4, 5]", axis=axis)
        yield Sample("f32[2, 0]")
        yield Sample("f32[3]", low=-300.0, high=300.0)
        yield Rejected("f32[3]", axis=-2, error=AxisError, says="outside")
        yield Rejected("c64[3]", error=DtypeError, says="x must be float")


log_softmax = op_function(LogSoftmax)

"""Reductions over a set of axes: means, extremes, products, moments, log-sum-exp.

All share two attributes: `axes` (an empty tuple is the identity) and `keep_dim`. Over an axis of size 0 the result is the
identity element; the extremes have none, so they refuse a size known to be 0 and add a guard for an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import product, require
from rlx_core.ir.dtypes import ALL, FLOATS, INEXACT, INTEGERS, DType, bool_, f32, f64, i32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Kink, define_op
from rlx_core.ir.types import TensorType, expect_dtype, normalize_axes
from rlx_core.ops.activation import exp, sqrt
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.complex import complex_norm_sq
from rlx_core.ops.conversion import as_dtype, cast, linear_jvp, widened
from rlx_core.ops.creation import full, size_scalar
from rlx_core.ops.cumulative import cumprod, log_or_minus_infinity
from rlx_core.ops.kinds import conjugate_if_complex
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import stop_gradient, where
from rlx_core.ops.structural import Reduction, expand_reduced, reshape, sum_axes, transpose
from rlx_core.system.records import frozen

_ORDERED = (*INTEGERS, *FLOATS, bool_)


def reduction_samples(dtypes: Sequence[DType], **settings: Any) -> Iterator[Sample | Rejected]:
    """Yield samples: every dtype, every axis of rank 4, several axes, rank 0, and the axes that are refused."""
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


def averaged(x: Value) -> Value:
    """Return `x` in the dtype in which it is averaged: integers and bool become f32, 64-bit ones f64."""
    if x.dtype.is_differentiable:
        return x
    return cast(x, to=f64 if x.dtype.itemsize == 8 else f32)


def _expect_elements(op: Reduction, x: TensorType) -> None:
    for axis, size in zip(normalize_axes(op.axes, x.rank), op.sizes(x), strict=True):
        if not require(">", size, 0):
            raise ShapeError(f"axis {axis} of {x} has 0 elements, and an extreme needs 1")


@define_op
class Mean(Reduction):
    """The mean over `axes`; NaN over an empty axis.

    f16 and bf16 accumulate in f32. Integers are averaged in f32, 64-bit ones in f64.

    Shapes:
        x: [.., n, ..]    ->    y: the listed axes dropped, or 1 with keep_dim
    """

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, INEXACT, "float or complex")
        return self.reduced(x)

    def prepare(self, x: Value) -> Value:
        return averaged(x)

    def reference(self, x: np.ndarray) -> np.ndarray:
        axes = normalize_axes(self.axes, x.ndim)
        count = np.prod([x.shape[a] for a in axes], dtype=np.int64)
        return np.sum(x, axis=axes, keepdims=self.keep_dim) / np.asarray(count, x.real.dtype)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        # The count is in the wide dtype: 100 000 is infinite in f16.
        wide = widened(g)
        share = as_dtype(wide / size_scalar(product(self.sizes(x.type)), wide.dtype), g.dtype)
        return (expand_reduced(share, x.type, self.axes),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(INEXACT)
        for d in (i32, i64, bool_):
            yield Sample(f"{d}[2, 3]", axes=(0,))


class ExtremeReduction(Reduction):
    """The largest or smallest element: ties share the derivative evenly. NaN propagates, also to all derivatives."""

    combine: ClassVar[np.ufunc]
    kinks: ClassVar = (
        Kink([1.0, 1.0], takes="shared", gives=[1 / 2, 1 / 2], axes=(0,)),
        Kink([1.0, 1.0, 1.0], takes="shared", gives=[1 / 3, 1 / 3, 1 / 3], axes=(0,)),
    )

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, _ORDERED, "real or bool")
        _expect_elements(self, x)
        return self.reduced(x)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return type(self).combine.reduce(x, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim)

    def _shares(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Return which elements equal the result, and their number, in the wide dtype."""
        is_extreme = x == expand_reduced(y, x.type, self.axes)
        return is_extreme, sum_axes(cast(is_extreme, to=x.dtype.accumulator), axes=self.axes, keep_dim=self.keep_dim)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        is_extreme, count = self._shares(x, y)
        share = as_dtype(widened(g) / count, g.dtype)
        others = where(y == y, 0, y)  # a NaN equals no element, not even itself
        return (where(is_extreme, *(expand_reduced(v, x.type, self.axes) for v in (share, others))),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        is_extreme, count = self._shares(x, y)
        total = sum_axes(widened(where(is_extreme, t[0], 0)), axes=self.axes, keep_dim=self.keep_dim)
        return as_dtype(total / count, t[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(_ORDERED)
        yield Sample("f64[3, 4]", axes=(1,), make=lambda rng: [np.round(rng.uniform(-1, 1, (3, 4)))], is_smooth=False)
        yield Rejected("f32[2, 0]", axes=(1,), error=ShapeError, says="0 elements")
        yield Rejected("c64[2]", axes=(0,), error=DtypeError, says="real")


@define_op(name="reduce_max")  # `rlx.max` is the element-wise one
class Max(ExtremeReduction):
    """The largest element over `axes`; NaN propagates, ties share the derivative evenly."""

    combine: ClassVar = np.maximum


@define_op(name="reduce_min")
class Min(ExtremeReduction):
    """The smallest element over `axes`; NaN propagates, ties share the derivative evenly."""

    combine: ClassVar = np.minimum


@define_op
class Prod(Reduction):
    """The product over `axes`; 1 over an empty axis. Integers wrap, a product of bool is i64.

    The derivative does not divide: for each element it multiplies the products of all elements before it and after it.
    """

    def infer(self, x: TensorType) -> TensorType:
        return self.reduced(x).with_dtype(i64 if x.dtype is bool_ else x.dtype)

    def reference(self, x: np.ndarray) -> np.ndarray:
        total = np.int64 if x.dtype == np.bool_ else x.dtype
        return np.asarray(np.prod(x, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim, dtype=total))

    def _others(self, x: Value) -> Value:
        """Return for each element the product of all others."""
        axes = normalize_axes(self.axes, x.ndim)
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        front = transpose(x, perm=order)
        kept_shape = front.shape[: x.ndim - len(axes)]
        line = reshape(front, (*kept_shape, product(self.sizes(x.type))))
        last = len(kept_shape)
        before, after = cumprod(line, axis=last, exclusive=True), cumprod(line, axis=last, exclusive=True, reverse=True)
        others = reshape(before * after, front.shape)
        return transpose(others, perm=tuple(order.index(i) for i in range(x.ndim)))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (expand_reduced(g, x.type, self.axes) * conjugate_if_complex(self._others(x)),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return sum_axes(t[0] * self._others(x), axes=self.axes, keep_dim=self.keep_dim)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(ALL)
        yield Sample("f64[2, 4]", axes=(1,), make=lambda rng: [np.array([[0.0, 2, 3, 4], [0, 0, 3, 4]])])


prod_axes = op_function(Prod)


@define_op
class LogSumExp(Reduction):
    """log Σ e^x over `axes`, shifted by the largest element to avoid overflow; -inf over an empty axis.

    Shapes:
        x: f[.., n, ..]    ->    y: the listed axes dropped, or 1 with keep_dim
    """

    category: ClassVar = "boundary"

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        return self.reduced(x)

    def decompose(self, x: Value) -> Value:
        if 0 in self.sizes(x.type):
            return full(self.reduced(x.type).shape, -float("inf"), x.dtype)
        wide = widened(x)
        # The shift cancels in the result, so its derivative is not needed. Rows whose maximum is infinite are not shifted.
        peak = stop_gradient(Max(self.axes, keep_dim=True)(wide))
        safe = where(abs(peak) == float("inf"), 0, peak)
        total = log_or_minus_infinity(sum_axes(exp(wide - safe), axes=self.axes, keep_dim=True)) + safe
        return as_dtype(reshape(total, self.reduced(x.type).shape), x.dtype)

    def _softmax(self, x: Value, y: Value) -> Value:
        # Where y is -inf all weights are 0; subtracting it would give NaN, here and in the derivative of this rule.
        safe = where(y == -float("inf"), 0, y)
        return exp(x - expand_reduced(safe, x.type, self.axes))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (expand_reduced(g, x.type, self.axes) * self._softmax(x, y),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return sum_axes(t[0] * self._softmax(x, y), axes=self.axes, keep_dim=self.keep_dim)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(FLOATS)
        yield Sample("f32[3]", axes=(0,), low=900, high=1000)
        yield Rejected("i32[3]", axes=(0,), error=DtypeError, says="float")


log_sum_exp = op_function(LogSumExp)


@frozen(slots=False)
class Moment(Reduction):
    """Base of variance and standard deviation."""

    category: ClassVar = "boundary"
    correction: float = 0.0

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, INEXACT, "float or complex")
        return self.reduced(x).with_dtype(x.dtype.component)

    def prepare(self, x: Value) -> Value:
        return averaged(x)

    def divisor(self, x: Value) -> Any:
        """Return n - correction, at least 0; as a number if n is known."""
        count = product(self.sizes(x.type))
        if isinstance(count, int):
            return max(count - self.correction, 0.0)
        return maximum(size_scalar(count, x.dtype.component) - self.correction, 0.0)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from reduction_samples(INEXACT)
        yield Sample("f64[3, 4]", axes=(1,), correction=1.0)
        yield Sample("i32[3, 4]", axes=(1,))


@define_op
class Var(Moment):
    """The variance over `axes` in two passes: the sum of |x - mean|², divided by n - correction; real for complex x too.

    Shapes:
        x: f[.., n, ..]    ->    y: the listed axes dropped, or 1 with keep_dim

    Attributes:
        correction: 0 for the biased variance of a population, 1 for the unbiased estimate from a sample.
    """

    def decompose(self, x: Value) -> Value:
        wide = widened(x)
        centred = wide - Mean(self.axes, keep_dim=True)(wide)
        squares = complex_norm_sq(centred) if x.dtype.is_complex else centred * centred
        total = sum_axes(squares, axes=self.axes, keep_dim=self.keep_dim)
        return as_dtype(total / self.divisor(wide), x.dtype.component)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        # The term through the mean vanishes: the centred elements sum to 0.
        wide = widened(x)
        centred = wide - Mean(self.axes, keep_dim=True)(wide)
        # For a complex x the cotangent is ∂L/∂x̄, half of that of a real one.
        share = widened(g) * (1.0 if x.dtype.is_complex else 2.0) / self.divisor(wide)
        return (as_dtype(centred * expand_reduced(as_dtype(share, wide.dtype), x.type, self.axes), x.dtype),)


@define_op
class Std(Moment):
    """The standard deviation over `axes`: the root of `Var`, with derivative 0 where it is 0.

    Attributes:
        correction: As for `Var`.
    """

    kinks: ClassVar = (Kink([1.0, 1.0], takes="mean", gives=[0.0, 0.0], axes=(0,)),)

    def decompose(self, x: Value) -> Value:
        variance = Var(self.axes, self.keep_dim, self.correction)(widened(x))
        return as_dtype(sqrt(variance), x.dtype.component)


var_axes, std_axes = op_function(Var), op_function(Std)
mean_axes, max_axes, min_axes = op_function(Mean), op_function(Max), op_function(Min)

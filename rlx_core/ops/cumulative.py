"""Running sums, products, extremes and log-sum-exps along one axis.

`exclusive` excludes an element from its result, which then starts at the identity; `reverse` runs from the end. Products and
log-sum-exps are the linear recurrence h_j = a_j·h_{j-1} + b_j, whose derivative is the same recurrence in reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, INTEGERS, DType
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, Kink, Op, Zero, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape, normalize_axis
from rlx_core.ops.activation import exp, log
from rlx_core.ops.along_axis import add_along_axis, take_along_axis
from rlx_core.ops.conversion import as_dtype, linear_jvp, per_element, widened
from rlx_core.ops.creation import iota, scalar, tangent_or_zeros
from rlx_core.ops.kinds import conjugate_if_complex, promoted
from rlx_core.ops.movement import flip, narrow, pad_axis
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import stop_gradient, where
from rlx_core.ops.structural import along_axis_batch
from rlx_core.system.records import frozen

_NUMERIC = (*INTEGERS, *FLOATS, *COMPLEXES)


def shifted(x: Value, axis: int, by: int, fill: Any = None) -> Value:
    """Return `x` shifted along an axis by 1 or -1, with `fill`, or 0, at the free end."""
    return pad_axis(x, axis, by, -by, value=fill)


@frozen(slots=False)
class Cumulative(Op):
    """Base of running reductions: the axis, the two attributes, and batching."""

    axis: int
    exclusive: bool = False
    reverse: bool = False
    accepts: ClassVar[tuple[DType, ...]] = _NUMERIC
    has_finite_identity: ClassVar[bool] = True
    category: ClassVar[Category] = "reduction"
    cost = per_element(1)

    def infer(self, x: TensorType) -> TensorType:
        normalize_axis(self.axis, x.rank)
        expect_dtype("x", x, self.accepts)
        return x

    batch = along_axis_batch

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in cls.accepts:
            yield Sample(f"{d}[2, 5]", axis=1)
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f64[2, 3, 4, 5]", axis=axis)
        for exclusive, reverse in ((True, False), (False, True), (True, True)):
            # Finite differences subtract results, and the difference of infinite identities is NaN.
            settings: dict[str, Any] = {
                "exclusive": exclusive,
                "reverse": reverse,
                "is_smooth": cls.has_finite_identity or not exclusive,
            }
            yield Sample("f64[3, 5]", axis=0, **settings)
            yield Sample("f32[2, 1]", axis=1, **settings)
            yield Sample(f"{cls.accepts[0]}[6]", axis=-1, **settings)
        yield Sample("f32[3, 0]", axis=1)
        yield Sample("f32[0, 3]", axis=1, exclusive=True)
        yield Rejected("f32[3]", axis=1, error=AxisError, says="outside")
        yield Rejected("bool[3]", axis=0, error=DtypeError, says="x must be")


def running(combine: np.ufunc, x: np.ndarray, axis: int, exclusive: bool, reverse: bool, identity: Any) -> np.ndarray:
    """Return a NumPy running reduction in the dtype of `x`."""
    line = np.flip(x, axis) if reverse else x
    result = combine.accumulate(line, axis=axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        first = np.full_like(np.take(result, [0], axis), identity)
        result = np.concatenate([first, np.delete(result, -1, axis)], axis)
    return np.flip(result, axis) if reverse else result


@define_op
class Cumsum(Cumulative):
    """Running sum along an axis; exclusive starts at 0. f16 and bf16 accumulate in f32, integers wrap."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return running(np.add, x, self.axis, self.exclusive, self.reverse, 0)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (evolve(self, reverse=not self.reverse)(g),)

    jvp = linear_jvp


cumsum = op_function(Cumsum)


@define_op
class LinearRecurrence(Op):
    """h_j = a_j·h_{j-1} + b_j along an axis, starting at h_0 = b_0; the first a is unused.

    Shapes:
        a, b: [.., n, ..]    ->    h: [.., n, ..]

    Attributes:
        axis: The axis that the recurrence runs along.
        reverse: Run from the end: h_j = a_j·h_{j+1} + b_j.
    """

    axis: int
    reverse: bool = False
    category: ClassVar = "reduction"
    cost = per_element(2)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        normalize_axis(self.axis, a.rank)
        expect_dtype("a", a, _NUMERIC, "numeric")
        expect_shape("b", b, a.shape)
        if a.dtype is not b.dtype:
            raise DtypeError(f"operands must have one dtype, not {a.dtype} and {b.dtype}")
        return a

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        h = np.array(b)
        factors, states = np.moveaxis(a, self.axis, 0), np.moveaxis(h, self.axis, 0)
        count = states.shape[0]
        order = range(count - 2, -1, -1) if self.reverse else range(1, count)
        for j in order:
            states[j] += factors[j] * states[j + 1 if self.reverse else j - 1]
        return h

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, a.ndim)
        ahead = -1 if not self.reverse else 1
        # G_j = g_j + a_{j+1}·G_{j+1}: the effect of a change here on every later state.
        total = LinearRecurrence(axis, not self.reverse)(conjugate_if_complex(shifted(a, axis, ahead)), g)
        return total * conjugate_if_complex(shifted(y, axis, -ahead)), total

    def jvp(self, t: Sequence[Any], a: Value, b: Value, *, y: Value) -> Any:
        source = tangent_or_zeros(t[1], b)
        if not isinstance(t[0], Zero):
            axis = normalize_axis(self.axis, a.ndim)
            source = source + t[0] * shifted(y, axis, -1 if self.reverse else 1)
        return self(a, source)

    batch = along_axis_batch

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in _NUMERIC:
            yield Sample(f"{d}[2, 5]", f"{d}[2, 5]", axis=1)
        for axis in (0, 1, 2, 3, -1):
            yield Sample("f64[2, 3, 4, 5]", "f64[2, 3, 4, 5]", axis=axis, reverse=axis % 2 == 1)
        yield Sample("f32[3, 0]", "f32[3, 0]", axis=1)
        yield Sample("f32[1]", "f32[1]", axis=0)
        yield Rejected("f32[3]", "f32[4]", axis=0, error=ShapeError, says="b must be [3]")
        yield Rejected("f32[3]", "f32[3]", axis=1, error=AxisError, says="outside")


linear_recurrence = op_function(LinearRecurrence)


@define_op
class Cumprod(Cumulative):
    """Running product along an axis; exclusive starts at 1. Its derivative does not divide, so zeros are supported."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return running(np.multiply, x, self.axis, self.exclusive, self.reverse, 1)

    def decompose(self, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        if x.shape[axis] == 0:
            return x
        entering = -1 if self.reverse else 1
        factors = shifted(x, axis, entering, scalar(1, x.dtype)) if self.exclusive else x
        size = x.shape[axis]
        start = narrow(factors, axis=axis, start=size - 1 if self.reverse else 0, length=1)
        padding = size - 1
        begins = pad_axis(start, axis, padding, 0) if self.reverse else pad_axis(start, axis, 0, padding)
        return LinearRecurrence(axis, self.reverse)(factors, begins)


cumprod = op_function(Cumprod)


class CumulativeExtreme(Cumulative):
    """A running extreme: the derivative goes to the first element that attained it; NaN is extreme."""

    accepts: ClassVar[tuple[DType, ...]] = (*INTEGERS, *FLOATS)
    has_finite_identity: ClassVar = False
    combine: ClassVar[np.ufunc]
    sign: ClassVar[int]
    kinks: ClassVar = (Kink([1.0, 1.0], takes="first", gives=[2.0, 0.0], axis=0),)

    def reference(self, x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "f":
            identity: Any = -self.sign * np.inf
        else:
            identity = np.iinfo(x.dtype).min if self.sign > 0 else np.iinfo(x.dtype).max
        return running(type(self).combine, x, self.axis, self.exclusive, self.reverse, identity)

    def _winners(self, x: Value) -> Value:
        """Return where each result of a plain running extreme of `x` was first attained."""
        axis = normalize_axis(self.axis, x.ndim)
        before = type(self)(axis, exclusive=True)(x)
        is_better = x > before if self.sign > 0 else x < before
        # A NaN replaces any number once, and nothing replaces a NaN.
        first_nan = where(x != x, before == before, False)
        position = iota(axis=axis, shape=x.shape)
        return Cummax(axis)(where(is_better, position, where(first_nan, position, 0)))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, x.ndim)
        if self.reverse:
            (back,) = evolve(self, reverse=False).vjp(flip(g, (axis,)), flip(x, (axis,)), y=flip(y, (axis,)))
            return (flip(back, (axis,)),)
        cotangent = shifted(g, axis, -1) if self.exclusive else g
        return (add_along_axis(cotangent, self._winners(x), axis, x.shape[axis]),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        if self.reverse:
            forward = evolve(self, reverse=False).jvp((flip(t[0], (axis,)),), flip(x, (axis,)), y=flip(y, (axis,)))
            return flip(forward, (axis,))
        taken = take_along_axis(t[0], self._winners(x), axis=axis)
        return shifted(taken, axis, 1) if self.exclusive else taken


@define_op
class Cummax(CumulativeExtreme):
    """Running maximum along an axis; exclusive starts at the smallest value of the dtype."""

    combine: ClassVar = np.maximum
    sign: ClassVar = 1


@define_op
class Cummin(CumulativeExtreme):
    """Running minimum along an axis; exclusive starts at the largest value of the dtype."""

    combine: ClassVar = np.minimum
    sign: ClassVar = -1


cummax, cummin = op_function(Cummax), op_function(Cummin)


def log_or_minus_infinity(total: Value) -> Value:
    """Return the logarithm of a sum of exponentials; where all of them underflowed it is -inf, with derivative 0."""
    # The operand is replaced too: 0/0 in the derivative of a branch that is not selected would still be NaN.
    is_nothing = total == 0
    return where(is_nothing, -float("inf"), log(where(is_nothing, 1, total)))


@define_op
class CumLogSumExp(Cumulative):
    """log of the running sum of exponentials along an axis, without overflow; exclusive starts at -inf.

    With the running maximum m: s_j = s_{j-1}·e^(m_{j-1} - m_j) + e^(x_j - m_j), y_j = m_j + log s_j.
    """

    category: ClassVar = "boundary"
    accepts: ClassVar[tuple[DType, ...]] = FLOATS
    has_finite_identity: ClassVar = False

    def reference(self, x: np.ndarray) -> np.ndarray:
        return running(np.logaddexp, x, self.axis, self.exclusive, self.reverse, -np.inf)

    def decompose(self, x: Value) -> Value:
        axis = normalize_axis(self.axis, x.ndim)
        entering = -1 if self.reverse else 1
        wide = widened(x)
        # The shift cancels in the result, so it carries no derivative.
        peak = stop_gradient(Cummax(axis, reverse=self.reverse)(wide))
        before = shifted(peak, axis, entering, scalar(-float("inf"), wide.dtype))
        safe = where(abs(peak) == float("inf"), 0, peak)
        decay = where(before == -float("inf"), 0, exp(where(before == -float("inf"), 0, before) - safe))
        total = LinearRecurrence(axis, self.reverse)(decay, exp(wide - safe))
        y = log_or_minus_infinity(total) + safe
        return as_dtype(shifted(y, axis, entering, scalar(-float("inf"), y.dtype)) if self.exclusive else y, x.dtype)


cum_log_sum_exp = op_function(CumLogSumExp)

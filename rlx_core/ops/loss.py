"""Losses: softmax cross-entropy as an op, mean squared and binary cross-entropy as compositions.

Cross-entropy is computed from logits, as the logarithm of the normaliser minus the label's logit, so that no probability
underflows. An ignored row has loss 0 and gradient 0, regardless of its logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, get_args

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, INTEGERS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape
from rlx_core.ops.activation import exp, log1p
from rlx_core.ops.arguments import choice
from rlx_core.ops.arithmetic import absolute, add, maximum, multiply, negative, square, subtract
from rlx_core.ops.conversion import as_dtype, per_element
from rlx_core.ops.creation import iota
from rlx_core.ops.indexing import gather
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import log_softmax, softmax
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import all_batched, reshape, sum_axes


def check_logits(logits: TensorType, labels: TensorType) -> None:
    """Require `[n, c]` float logits and `[n]` integer labels."""
    expect_dtype("logits", logits, FLOATS, "float")
    expect_rank("logits", logits, 2, 2)
    expect_dtype("labels", labels, INTEGERS, "an integer")
    expect_shape("labels", labels, logits.shape[:1])


def safe_labels(labels: Value, ignore_index: int | None) -> tuple[Value, Value | None]:
    """Return labels that are valid indices, and which rows are ignored."""
    if ignore_index is None:
        return labels, None
    is_ignored = labels == ignore_index
    return where(is_ignored, 0, labels), is_ignored


def without_ignored(logits: Value, is_ignored: Value | None) -> Value:
    """Return logits with 0 in ignored rows, so that a NaN there reaches neither a value nor a derivative."""
    return logits if is_ignored is None else where(reshape(is_ignored, (logits.shape[0], 1)), 0, logits)


def fold_rows(x: Sequence[Value]) -> list[Value]:
    """Return the operands with the batch axis and the rows merged."""
    return [reshape(v, (v.shape[0] * v.shape[1], *v.shape[2:])) for v in x]


def residual(logits: Value, labels: Value, ignore_index: int | None) -> Value:
    """Return `p - onehot`, wide, with 0 in ignored rows: the derivative of each row's loss."""
    classes = logits.shape[1]
    chosen, is_ignored = safe_labels(labels, ignore_index)
    column = iota(axis=1, shape=(1, classes), dtype=labels.dtype)
    is_label = reshape(chosen, (chosen.shape[0], 1)) == column
    p = softmax(without_ignored(wide(logits), is_ignored), axis=1)
    d = p - as_dtype(is_label, p.dtype)
    return d if is_ignored is None else where(reshape(is_ignored, (labels.shape[0], 1)), 0, d)


@define_op
class SoftmaxCrossEntropyWithLogits(Op):
    """The loss of each row: `log Σ exp(logits) - logits[label]`.

    Shapes:
        logits: f[n, c]    labels: int[n]    ->    y: f[n]

    Attributes:
        ignore_index: A label whose rows have loss 0 and gradient 0.

    Raises:
        IndexRangeError (at run time): A label is out of range and is not the ignored one.
    """

    category: ClassVar = "boundary"
    ignore_index: int | None = None
    cost = per_element(6)

    def infer(self, logits: TensorType, labels: TensorType) -> TensorType:
        check_logits(logits, labels)
        return logits.with_shape(logits.shape[:1])

    def decompose(self, logits: Value, labels: Value) -> Value:
        chosen, is_ignored = safe_labels(labels, self.ignore_index)
        rows = log_softmax(without_ignored(wide(logits), is_ignored), axis=1)
        loss = -gather(rows, chosen, axis=1, batch_dims=1)
        return as_dtype(loss if is_ignored is None else where(is_ignored, 0, loss), logits.dtype)

    def vjp(self, g: Value, logits: Value, labels: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        return softmax_cross_entropy_backward(logits, labels, g, ignore_index=self.ignore_index), ZERO

    def jvp(self, t: Sequence[Any], logits: Value, labels: Value, *, y: Value) -> Value:
        return as_dtype(sum_axes(residual(logits, labels, self.ignore_index) * wide(t[0]), axes=(1,)), logits.dtype)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        logits, labels = all_batched(size, x, is_batched)
        return reshape(self(*fold_rows([logits, labels])), labels.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", "i64[3]", ranges={"labels": (0, 3)})
        yield Sample("f32[3, 4]", "u8[3]", ranges={"labels": (0, 3)})
        yield Sample("f64[5, 3]", "i32[5]", ignore_index=-1, ranges={"labels": (-1, 2)})
        yield Sample("f64[4, 3]", "i64[4]", ignore_index=1, ranges={"labels": (0, 2)})
        yield Sample("f32[0, 3]", "i32[0]")
        yield Sample("f32[2, 3]", "i32[2]", low=-200.0, high=200.0, ranges={"labels": (0, 2)})
        yield Rejected("f32[3, 4]", "f32[3]", error=DtypeError, says="labels must be an integer")
        yield Rejected("f32[3, 4]", "i32[4]", error=ShapeError, says="labels must be [3]")
        yield Rejected("f32[2, 3, 4]", "i32[2, 3]", error=ShapeError, says="2 axes, not 3")


softmax_cross_entropy_with_logits = op_function(SoftmaxCrossEntropyWithLogits)


@define_op
class SoftmaxCrossEntropyBackward(Op):
    """The cotangent of the logits: `(softmax(logits) - onehot(labels))·dl`, 0 in ignored rows.

    Shapes:
        logits: f[n, c]    labels: int[n]    dl: f[n]    ->    f[n, c]
    """

    category: ClassVar = "boundary"
    ignore_index: int | None = None
    cost = per_element(7)

    def infer(self, logits: TensorType, labels: TensorType, dl: TensorType) -> TensorType:
        check_logits(logits, labels)
        expect_dtype("dl", dl, (logits.dtype,))
        expect_shape("dl", dl, logits.shape[:1])
        return logits

    def decompose(self, logits: Value, labels: Value, dl: Value) -> Value:
        column = reshape(wide(dl), (dl.shape[0], 1))
        return as_dtype(residual(logits, labels, self.ignore_index) * column, logits.dtype)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        operands = all_batched(size, x, is_batched)
        return reshape(self(*fold_rows(operands)), operands[0].shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", "i64[3]", f"{d}[3]", ranges={"labels": (0, 3)})
        yield Sample("f64[5, 3]", "i32[5]", "f64[5]", ignore_index=-1, ranges={"labels": (-1, 2)})
        yield Rejected("f32[3, 4]", "i32[3]", "f32[4]", error=ShapeError, says="dl must be [3]")


softmax_cross_entropy_backward = op_function(SoftmaxCrossEntropyBackward)


Reduction = Literal["mean", "sum", "none"]
"""The reduction of the losses of rows or elements."""

REDUCTIONS: tuple[str, ...] = get_args(Reduction)


@checked_call
def mean_squared_error(predictions: Any, targets: Any, *, reduction: Reduction = "mean") -> Any:
    """`(predictions - targets)²`: the mean over all elements, the sum, or each element ("none").

    Raises:
        ConfigError: The reduction is unknown.
    """
    mode = choice("mean_squared_error: reduction", reduction, REDUCTIONS)
    return _reduced(square(subtract(predictions, targets)), mode)


@checked_call
def binary_cross_entropy_with_logits(logits: Any, targets: Any, *, reduction: Reduction = "mean") -> Any:
    """`max(x, 0) - x·t + log(1 + e^-|x|)` of each element, without overflow; targets are in 0..1.

    Args:
        logits: Unnormalised log-odds.
        targets: The probability of a 1.
        reduction: "mean" over all elements, "sum", or "none".

    Raises:
        ConfigError: The reduction is unknown.
    """
    mode = choice("binary_cross_entropy_with_logits: reduction", reduction, REDUCTIONS)
    linear = subtract(maximum(logits, 0.0), multiply(logits, targets))
    return _reduced(add(linear, log1p(exp(negative(absolute(logits))))), mode)


def _reduced(losses: Any, mode: str) -> Any:
    if mode == "none":
        return losses
    axes = tuple(range(losses.ndim))
    return sum_axes(losses, axes=axes) if mode == "sum" else mean_axes(losses, axes=axes)

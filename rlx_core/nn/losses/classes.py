"""Losses of scores `[.., c]`, classes last, with the target class of each row `[..]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import DType
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.nn.floats import floats, narrowed
from rlx_core.nn.losses.reducing import Reduction, at_least, checked, reduced
from rlx_core.ops.arguments import choice, number
from rlx_core.ops.arithmetic import add, divide, maximum, multiply, negative, pow, subtract
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_shapes import expand_dims
from rlx_core.ops.array_statistics import sum
from rlx_core.ops.comparison import equal, not_equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota, ones
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import operand
from rlx_core.ops.loss import REDUCTIONS, softmax_cross_entropy_with_logits
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import log_softmax
from rlx_core.ops.structural import reshape, sum_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["cross_entropy", "multi_margin_loss", "nll_loss"]


@checked_call
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """Softmax cross-entropy of logits `[.., c]` with integer labels `[..]`.

    Args:
        logits: Unnormalised log-probabilities, classes last.
        labels: The target class of each row.
        weight: `[c]`, the weight of rows of each class, in the sum and in the mean's denominator; 1 by default.
        label_smoothing: The share of the target probability that is spread over all classes, 0 to 1.
        ignore_index: A label whose rows are ignored, in the sum and in the mean's denominator.
        reduction: "mean" over rows, "sum", or "none".

    Raises:
        ConfigError: The reduction is unknown, or the smoothing is outside of 0..1.
        ShapeError: The shape of the labels does not match the rows of the logits, or that of the weights their classes.
    """
    choice("cross_entropy: reduction", reduction, REDUCTIONS)
    smoothing = at_least("cross_entropy: label_smoothing", label_smoothing)
    if smoothing > 1:
        raise ConfigError(f"cross_entropy: label_smoothing must be from 0 to 1, not {smoothing}")
    scores, targets = operand(logits), operand(labels)
    shape = tuple(targets.shape)
    if tuple(scores.shape[:-1]) != shape:
        raise ShapeError(
            f"cross_entropy: labels {list(shape)} do not match logits {list(scores.shape)} without classes"
        )
    if weight is not None or smoothing:
        return _of_log_probabilities(
            "cross_entropy", scores, targets, weight, ignore_index, reduction, smoothing, is_normalised=False
        )
    rows = product(shape)
    losses = softmax_cross_entropy_with_logits(
        reshape(scores, (rows, scores.shape[-1])), reshape(targets, (rows,)), ignore_index=ignore_index
    )
    if reduction == "none":
        return reshape(losses, shape)
    if reduction == "mean" and ignore_index is None:
        return mean_axes(losses, axes=(0,))
    total = sum_axes(losses, axes=(0,))
    if reduction == "sum":
        return total
    # At least 1, so that a batch of ignored rows only has loss 0.
    counted = maximum(sum_axes(not_equal(targets, ignore_index), axes=tuple(range(len(shape)))), 1)
    return total / cast(counted, to=as_dtype(total.dtype))


@checked_call
def nll_loss(
    log_probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """`-log_probabilities[label]` of each row: cross-entropy of log-probabilities, as computed by `log_softmax`.

    Args:
        log_probabilities: f[.., c], classes last.
        labels: int[..], the target class of each row.
        weight, ignore_index, reduction: As for `cross_entropy`.

    Raises:
        ConfigError: The reduction is unknown.
        DtypeError: The labels are not integers.
        ShapeError: The shape of the labels does not match the rows, or that of the weights the classes.
    """
    mode = checked("nll_loss", reduction)
    x, targets = operand(log_probabilities), operand(labels)
    return _of_log_probabilities("nll_loss", x, targets, weight, ignore_index, mode, 0.0, is_normalised=True)


@checked_call
def multi_margin_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    p: int = 1,
    margin: float = 1.0,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """`Σ max(0, margin - scores[label] + scores[i])^p / c` over the other classes i: a multi-class hinge loss.

    Args:
        scores: f[.., c], classes last.
        labels: int[..], the target class of each row.
        p: 1 or 2.
        margin: The margin by which the score of the target class should be larger.
        weight: `[c]`, the weight of rows of each class; 1 by default. The mean is over rows, independent of their weights.
        reduction: "mean" over rows, "sum", or "none".

    Raises:
        ConfigError: `p` or the reduction is invalid.
        DtypeError: The labels are not integers.
        ShapeError: The shape of the labels does not match the rows, or that of the weights the classes.
    """
    mode, wide = checked("multi_margin_loss", reduction), number("multi_margin_loss: margin", margin)
    if number("multi_margin_loss: p", p) not in (1, 2):
        raise ConfigError(f"multi_margin_loss: p must be 1 or 2, not {p}")
    result_dtype, x, targets, weights = _rows("multi_margin_loss", operand(scores), operand(labels), weight)
    right = expand_dims(_chosen(x, targets), -1)
    short = maximum(add(subtract(x, right), wide), 0.0)
    losses = pow(short, 2.0) if p == 2 else short
    if weights is not None:
        losses = multiply(losses, expand_dims(gather(weights, targets, axis=0), -1))
    classes = iota(axis=x.ndim - 1, shape=(*(1,) * (x.ndim - 1), x.shape[-1]), dtype=dtype_of(targets))
    others = where(equal(classes, expand_dims(targets, -1)), 0.0, losses)
    return reduced(divide(sum(others, axis=-1), x.shape[-1]), mode, result_dtype)


def _of_log_probabilities(
    what: str,
    x: Any,
    labels: Any,
    weight: Any,
    ignore_index: int | None,
    reduction: str,
    smoothing: float,
    *,
    is_normalised: bool,
) -> Any:
    """Return the losses of rows; their mean is weighted by the weights of their labels."""
    result_dtype, x, targets, weights = _rows(what, x, labels, weight)
    is_kept = None if ignore_index is None else not_equal(targets, ignore_index)
    if is_kept is not None:  # a NaN in an ignored row reaches neither a value nor a derivative
        x = where(expand_dims(is_kept, -1), x, 0.0)
        targets = where(is_kept, targets, 0)
    rows = x if is_normalised else log_softmax(x, axis=-1)
    row_weights = (
        ones(tuple(targets.shape), result_dtype.accumulator) if weights is None else gather(weights, targets, axis=0)
    )
    losses = negative(multiply(row_weights, _chosen(rows, targets)))
    if smoothing:
        shared = sum(rows if weights is None else multiply(rows, weights), axis=-1)
        losses = subtract(multiply(losses, 1 - smoothing), multiply(divide(shared, x.shape[-1]), smoothing))
    if is_kept is not None:
        losses, row_weights = (where(is_kept, v, 0.0) for v in (losses, row_weights))
    if reduction != "mean":
        return reduced(losses, reduction, result_dtype)
    total = sum(row_weights)
    return narrowed(divide(sum(losses), where(equal(total, 0), 1.0, total)), result_dtype)


def _rows(what: str, x: Any, labels: Any, weight: Any) -> tuple[DType, Any, Any, Any]:
    """Return the dtype of the result, scores and weights in the dtype of the computation, and labels of matching shape."""
    if not dtype_of(labels).is_integer:
        raise DtypeError(f"{what}: labels must be integers, not {dtype_of(labels)}")
    if not x.ndim or tuple(x.shape[:-1]) != tuple(labels.shape):
        raise ShapeError(f"{what}: labels {list(labels.shape)} do not match scores {list(x.shape)} without classes")
    result_dtype, (wide, *weights) = floats(what, scores=x, **({} if weight is None else {"weight": weight}))
    if weights and tuple(weights[0].shape) != (x.shape[-1],):
        raise ShapeError(f"{what}: weight must be [{x.shape[-1]}], not {list(weights[0].shape)}")
    return result_dtype, wide, labels, weights[0] if weights else None


def _chosen(rows: Any, labels: Any) -> Any:
    """Return the element of each row at its label."""
    rank = len(labels.shape)
    return gather(rows, labels, axis=rank, batch_dims=rank)

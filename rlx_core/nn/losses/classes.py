"""Losses of scores with the right class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops.arguments import choice
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.comparison import not_equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import operand
from rlx_core.ops.loss import REDUCTIONS, Reduction, softmax_cross_entropy_with_logits
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.structural import reshape, sum_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["cross_entropy"]


def cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, ignore_index: int | None = None, reduction: Reduction = "mean"
) -> Array:
    """Softmax cross-entropy of logits `[.., c]` with integer labels `[..]`.

    Args:
        logits: Unnormalised log-probabilities, classes last.
        labels: The right class of each row.
        ignore_index: A label whose rows count for nothing, neither in the sum nor in the mean's denominator.
        reduction: "mean" over rows, "sum", or "none".

    Raises:
        ConfigError: The reduction is another word.
    """
    choice("cross_entropy: reduction", reduction, REDUCTIONS)
    scores, targets = operand(logits), operand(labels)
    shape = tuple(targets.shape)
    if tuple(scores.shape[:-1]) != shape:
        raise ShapeError(
            f"cross_entropy: labels {list(shape)} do not match logits {list(scores.shape)} without classes"
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
    # At least 1, so that a batch of nothing but ignored rows has loss 0.
    counted = maximum(sum_axes(not_equal(targets, ignore_index), axes=tuple(range(len(shape)))), 1)
    return total / cast(counted, to=as_dtype(total.dtype))

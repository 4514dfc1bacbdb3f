"""Losses of probabilities, or of their logits or logarithms, with target probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.nn.floats import floats
from rlx_core.nn.losses.reducing import Reduction, at_least, checked, reduced
from rlx_core.ops.activation import exp, log, log1p, sigmoid, softplus
from rlx_core.ops.arguments import choice, flag
from rlx_core.ops.arithmetic import add, divide, maximum, multiply, negative, pow, subtract
from rlx_core.ops.array_statistics import mean
from rlx_core.ops.comparison import greater
from rlx_core.ops.linalg import operand
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["binary_cross_entropy", "kl_div", "multilabel_soft_margin_loss", "sigmoid_focal_loss"]

LEAST_LOG = -100.0
"""The value used as the logarithm of a probability of 0."""


@checked_call
def binary_cross_entropy(
    predictions: ArrayLike, targets: ArrayLike, *, weight: ArrayLike | None = None, reduction: Reduction = "mean"
) -> Array:
    """`-t·ln p - (1 - t)·ln(1 - p)` of probabilities; logarithms are clamped to at least -100, without gradient there.

    `binary_cross_entropy_with_logits` computes the same from logits, without loss of precision near 0 and 1.

    Args:
        predictions: Probabilities, 0 to 1.
        targets: The probability of a 1.
        weight: The weight of each element, broadcast; 1 by default. The mean is over elements, independent of their weights.
        reduction: "mean" over all elements, "sum", or "none".
    """
    mode = checked("binary_cross_entropy", reduction)
    result_dtype, (p, t, *weights) = floats(
        "binary_cross_entropy", predictions=predictions, targets=targets, **_given(weight)
    )
    is_yes, is_no = greater(p, 0), greater(subtract(1.0, p), 0)
    log_yes = maximum(where(is_yes, log(where(is_yes, p, 1.0)), LEAST_LOG), LEAST_LOG)
    log_no = maximum(where(is_no, log1p(negative(where(is_no, p, 0.0))), LEAST_LOG), LEAST_LOG)
    losses = negative(add(multiply(t, log_yes), multiply(subtract(1.0, t), log_no)))
    return reduced(multiply(losses, weights[0]) if weights else losses, mode, result_dtype)


KlReduction = Literal["mean", "sum", "none", "batchmean"]


@checked_call
def kl_div(
    log_predictions: ArrayLike, targets: ArrayLike, *, log_target: bool = False, reduction: KlReduction = "mean"
) -> Array:
    """`t·(ln t - log_predictions)`: the Kullback–Leibler divergence of the predicted distributions from the targets.

    Args:
        log_predictions: ln of the predicted probabilities.
        targets: The target probabilities, or their logarithms with `log_target`. Where one is 0, so is its loss.
        log_target: Whether the targets are logarithms.
        reduction: "batchmean" is the divergence itself: the sum divided by the size of the first axis. "mean" is over all
            elements, "sum" their sum, "none" each.

    Raises:
        ConfigError: The reduction is unknown.
    """
    mode = choice("kl_div: reduction", reduction, ("mean", "sum", "none", "batchmean"))
    result_dtype, (x, t) = floats("kl_div", log_predictions=log_predictions, targets=targets)
    if flag("kl_div: log_target", log_target):
        losses = multiply(exp(t), subtract(t, x))
    else:
        is_there = greater(t, 0)
        losses = where(is_there, multiply(t, subtract(log(where(is_there, t, 1.0)), x)), multiply(t, 0.0))
    if mode != "batchmean":
        return reduced(losses, mode, result_dtype)
    if not losses.ndim:
        raise ConfigError("kl_div: batchmean is over the first axis, and there is none")
    return reduced(divide(losses, losses.shape[0]), "sum", result_dtype)


@checked_call
def sigmoid_focal_loss(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    alpha: float | None = None,
    gamma: float = 2.0,
    reduction: Reduction = "mean",
) -> Array:
    """Binary cross-entropy times `(1 - p)^gamma`, with p the probability of the target: easy examples have little weight.

    Args:
        logits: Unnormalised log-odds.
        targets: The probability of a 1.
        alpha: The weight of ones, 0 to 1; zeros have 1 - alpha. Both are 1 by default.
        gamma: The exponent that reduces the weight of easy examples; 0 for cross-entropy.
        reduction: "mean" over all elements, "sum", or "none".

    Source:
        Lin, Goyal, Girshick, He, Dollár 2017, "Focal loss for dense object detection", arXiv:1708.02002.
    """
    mode = checked("sigmoid_focal_loss", reduction)
    exponent = at_least("sigmoid_focal_loss: gamma", gamma)
    result_dtype, (x, t) = floats("sigmoid_focal_loss", logits=logits, targets=targets)
    p = sigmoid(x)
    wrong = add(multiply(p, subtract(1.0, t)), multiply(subtract(1.0, p), t))
    losses = _with_logits(x, t)
    if exponent:
        losses = multiply(losses, pow(wrong, exponent))
    if alpha is not None:
        share = at_least("sigmoid_focal_loss: alpha", alpha)
        if share > 1:
            raise ConfigError(f"sigmoid_focal_loss: alpha must be from 0 to 1, not {share}")
        losses = multiply(losses, add(multiply(t, share), multiply(subtract(1.0, t), 1 - share)))
    return reduced(losses, mode, result_dtype)


@checked_call
def multilabel_soft_margin_loss(
    logits: ArrayLike, targets: ArrayLike, *, weight: ArrayLike | None = None, reduction: Reduction = "mean"
) -> Array:
    """The mean over classes, which are last, of binary cross-entropy with logits.

    Args:
        logits: `[.., c]`.
        targets: `[.., c]`, 1 where a class is present.
        weight: `[c]`; 1 by default.
        reduction: "mean" over rows, "sum", or "none".
    """
    mode = checked("multilabel_soft_margin_loss", reduction)
    result_dtype, (x, t, *weights) = floats(
        "multilabel_soft_margin_loss", logits=logits, targets=targets, **_given(weight)
    )
    losses = _with_logits(x, t)
    return reduced(mean(multiply(losses, weights[0]) if weights else losses, axis=-1), mode, result_dtype)


def _with_logits(x: Any, t: Any) -> Any:
    """`-t·ln σ(x) - (1 - t)·ln σ(-x)`."""
    return add(multiply(t, softplus(negative(x))), multiply(subtract(1.0, t), softplus(x)))


def _given(weight: ArrayLike | None) -> dict[str, Any]:
    return {} if weight is None else {"weight": operand(weight)}

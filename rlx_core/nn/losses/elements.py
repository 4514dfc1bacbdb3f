"""Regression losses: absolute, Huber, and negative log-likelihoods of distributions with predicted parameters.

Operands broadcast; targets may be integers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.nn.floats import floats
from rlx_core.nn.losses.reducing import Reduction, at_least, checked, reduced
from rlx_core.ops.activation import exp, log
from rlx_core.ops.arguments import flag
from rlx_core.ops.arithmetic import absolute, add, divide, logaddexp, maximum, multiply, negative, square, subtract
from rlx_core.ops.comparison import greater, less_equal
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["gaussian_nll_loss", "huber_loss", "l1_loss", "log_cosh_loss", "poisson_nll_loss", "smooth_l1_loss"]


@checked_call
def l1_loss(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """`|predictions - targets|`: the mean, the sum, or each element ("none")."""
    mode = checked("l1_loss", reduction)
    result_dtype, (x, t) = floats("l1_loss", predictions=predictions, targets=targets)
    return reduced(absolute(subtract(x, t)), mode, result_dtype)


@checked_call
def huber_loss(
    predictions: ArrayLike, targets: ArrayLike, *, delta: float = 1.0, reduction: Reduction = "mean"
) -> Array:
    """`e²/2` where the error is at most `delta`, and `delta·(|e| - delta/2)` beyond.

    Raises:
        ConfigError: `delta` is not above 0, or the reduction is unknown.

    Source:
        Huber 1964, "Robust estimation of a location parameter", Annals of Mathematical Statistics 35.
    """
    mode, bend = checked("huber_loss", reduction), _above("huber_loss: delta", delta)
    result_dtype, (x, t) = floats("huber_loss", predictions=predictions, targets=targets)
    return reduced(_huber(subtract(x, t), bend), mode, result_dtype)


@checked_call
def smooth_l1_loss(
    predictions: ArrayLike, targets: ArrayLike, *, beta: float = 1.0, reduction: Reduction = "mean"
) -> Array:
    """`e²/(2·beta)` where the error is at most `beta`, and `|e| - beta/2` beyond: Huber's over `beta`; `|e|` if `beta` is 0.

    Raises:
        ConfigError: `beta` is below 0, or the reduction is unknown.
    """
    mode, bend = checked("smooth_l1_loss", reduction), at_least("smooth_l1_loss: beta", beta)
    result_dtype, (x, t) = floats("smooth_l1_loss", predictions=predictions, targets=targets)
    error = subtract(x, t)
    return reduced(divide(_huber(error, bend), bend) if bend else absolute(error), mode, result_dtype)


@checked_call
def log_cosh_loss(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """`ln cosh e`: approximately `e²/2` for small errors and `|e| - ln 2` for large ones."""
    mode = checked("log_cosh_loss", reduction)
    result_dtype, (x, t) = floats("log_cosh_loss", predictions=predictions, targets=targets)
    error = subtract(x, t)
    return reduced(subtract(logaddexp(error, negative(error)), math.log(2)), mode, result_dtype)


@checked_call
def poisson_nll_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = "mean",
) -> Array:
    """The negative log-likelihood of counts under Poisson distributions of the predicted rates: `rate - t·ln rate`.

    Args:
        predictions: ln of the rates; the rates themselves if not `log_input`.
        targets: The counts.
        log_input: Whether `predictions` are logarithms.
        full: Whether `ln t!` is added, by Stirling's formula where t is above 1 (and as 0 elsewhere).
        eps: Added to a rate before its logarithm is taken.
        reduction: "mean" over all elements, "sum", or "none".
    """
    mode = checked("poisson_nll_loss", reduction)
    result_dtype, (x, t) = floats("poisson_nll_loss", predictions=predictions, targets=targets)
    least = at_least("poisson_nll_loss: eps", eps)
    if flag("poisson_nll_loss: log_input", log_input):
        losses = subtract(exp(x), multiply(t, x))
    else:
        losses = subtract(x, multiply(t, log(add(x, least))))
    if flag("poisson_nll_loss: full", full):
        is_large = greater(t, 1)
        n = where(is_large, t, 1.0)
        stirling = add(subtract(multiply(n, log(n)), n), multiply(log(multiply(n, 2 * math.pi)), 0.5))
        losses = add(losses, where(is_large, stirling, 0.0))
    return reduced(losses, mode, result_dtype)


@checked_call
def gaussian_nll_loss(
    mean: ArrayLike,
    targets: ArrayLike,
    var: ArrayLike,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Array:
    """The negative log-likelihood of numbers under normal distributions: `(ln var + (mean - t)²/var) / 2`.

    Args:
        mean: The predicted means.
        targets: The observed values.
        var: The predicted variances; a variance below `eps` is replaced by `eps`, and has no gradient.
        full: Whether the constant `ln(2π)/2` is added.
        eps: The minimum variance.
        reduction: "mean" over all elements, "sum", or "none".
    """
    mode = checked("gaussian_nll_loss", reduction)
    result_dtype, (x, t, variance) = floats("gaussian_nll_loss", mean=mean, targets=targets, var=var)
    variance = maximum(variance, _above("gaussian_nll_loss: eps", eps))
    constant = math.log(2 * math.pi) if flag("gaussian_nll_loss: full", full) else 0.0
    losses = multiply(add(add(log(variance), divide(square(subtract(x, t)), variance)), constant), 0.5)
    return reduced(losses, mode, result_dtype)


def _huber(error: Any, bend: float) -> Any:
    size = absolute(error)
    return where(less_equal(size, bend), multiply(square(error), 0.5), multiply(subtract(size, bend / 2), bend))


def _above(what: str, value: Any) -> float:
    result = at_least(what, value)
    if result == 0:
        raise ConfigError(f"{what} must be above 0, not {result}")
    return result

"""Dropout layers, for training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.errors import ConfigError
from rlx_core.hints.keywords import checked_call
from rlx_core.nn.floats import floats, narrowed
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.linalg import operand
from rlx_core.ops.random.bits import Dropout
from rlx_core.ops.random.draws import bernoulli
from rlx_core.ops.random.keys import one_key
from rlx_core.ops.selection import where
from rlx_core.trees.key import Key

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["alpha_dropout", "dropout"]

SATURATION = -1.7580993408473766
"""The limit of SELU for x → -∞: -λ·α."""


@checked_call
def dropout(x: ArrayLike, key: Key, rate: float, *, training: bool = True) -> Array:
    """Each element 0 with a probability of `rate`, and x / (1 - rate) otherwise; `x` unchanged outside of training.

    The mask is generated from the key, again in the backward pass; it is never stored.

    Args:
        x: f[..].
        key: One key; a different one for each layer and step.
        rate: From 0 to 1.
        training: Whether elements are dropped.

    Raises:
        ConfigError: The rate is outside of 0..1.
        DtypeError: `x` is not floating-point, or `key` is not a random key.
    """
    words = one_key("dropout", key)
    op = Dropout(rate)
    return op(operand(x), words) if flag("dropout: training", training) else operand(x)


# ------------------------------------------------------------------------------------------ losses


@checked_call
def alpha_dropout(x: ArrayLike, key: Key, rate: float, *, training: bool = True) -> Array:
    """Dropout for SELU: elements become the limit of SELU, and all are scaled so that mean and variance stay 0 and 1.

    Args:
        x: f[..].
        key: One key; a different one for each layer and step.
        rate: The probability of dropping an element: from 0 to below 1.
        training: Whether elements are dropped.

    Raises:
        ConfigError: The rate is outside of 0..1, or 1.
        DtypeError: `x` is not floating-point, or `key` is not a random key.

    Source:
        Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-normalizing neural networks", arXiv:1706.02515.
    """
    result_dtype, (wide,) = floats("alpha_dropout", x=x)
    share = number("alpha_dropout: rate", rate)
    if not 0 <= share < 1:
        raise ConfigError(f"alpha_dropout: rate must be from 0 to below 1, not {share}")
    one_key("alpha_dropout", key)
    if not flag("alpha_dropout: training", training):
        return operand(x)
    scale = ((1 - share) * (1 + share * SATURATION * SATURATION)) ** -0.5
    masked = where(bernoulli(key, 1 - share, tuple(wide.shape)), wide, SATURATION)
    return narrowed(add(multiply(masked, scale), -scale * SATURATION * share), result_dtype)

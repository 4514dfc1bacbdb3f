"""What is left out at random while a model is trained."""

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

FAR = -1.7580993408473766
"""Where SELU goes to for x → -∞: -λ·α."""


@checked_call
def dropout(x: ArrayLike, key: Key, rate: float, *, training: bool = True) -> Array:
    """Each element 0 with a probability of `rate`, and x / (1 - rate) otherwise; `x` as it is, when not training.

    The mask is drawn from the key, in the gradient once more; it is nowhere stored.

    Args:
        x: f[..].
        key: One key; another one for each layer and step.
        rate: From 0 to 1.
        training: Whether anything is dropped.

    Raises:
        ConfigError: The rate is outside of 0..1.
        DtypeError: `x` is no float, or `key` no random key.
    """
    words = one_key("dropout", key)
    op = Dropout(rate)
    return op(operand(x), words) if flag("dropout: training", training) else operand(x)


# ------------------------------------------------------------------------------------------ losses


@checked_call
def alpha_dropout(x: ArrayLike, key: Key, rate: float, *, training: bool = True) -> Array:
    """Dropout for SELU: elements become the value that SELU goes to, and all are scaled so that mean and variance stay 0 and 1.

    Args:
        x: f[..].
        key: One key; another one for each layer and step.
        rate: How likely each is dropped: from 0 to below 1.
        training: Whether anything is dropped.

    Raises:
        ConfigError: The rate is outside of 0..1, or 1.
        DtypeError: `x` is no float, or `key` no random key.

    Source:
        Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-normalizing neural networks", arXiv:1706.02515.
    """
    of, (wide,) = floats("alpha_dropout", x=x)
    share = number("alpha_dropout: rate", rate)
    if not 0 <= share < 1:
        raise ConfigError(f"alpha_dropout: rate must be from 0 to below 1, not {share}")
    one_key("alpha_dropout", key)
    if not flag("alpha_dropout: training", training):
        return operand(x)
    scale = ((1 - share) * (1 + share * FAR * FAR)) ** -0.5
    kept = where(bernoulli(key, 1 - share, tuple(wide.shape)), wide, FAR)
    return narrowed(add(multiply(kept, scale), -scale * FAR * share), of)

"""What is left out at random while a model is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.ops.arguments import flag
from rlx_core.ops.linalg import operand
from rlx_core.ops.random.bits import Dropout
from rlx_core.ops.random.keys import one_key
from rlx_core.trees.key import Key

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["dropout"]


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

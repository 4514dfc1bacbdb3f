"""Activations that are no ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.ops.activation import gelu as _gelu
from rlx_core.ops.activation import gelu_approx
from rlx_core.ops.arguments import flag

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["gelu"]


def gelu(x: ArrayLike, *, approximate: bool = False) -> Array:
    """`x · Φ(x)`; `approximate` takes the tanh formula, which is another function (it differs by up to 5e-4)."""
    return gelu_approx(x) if flag("gelu: approximate", approximate) else _gelu(x)

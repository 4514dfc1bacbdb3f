"""Mixtures of experts: nets of which a token goes through a few, by what a gate says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_torch.pretrained.parts import Parameters, linear

__all__ = ["Experts"]


@frozen(kw_only=True)
class Experts:
    """Gated nets: a token's features are those of the `chosen` likeliest, mixed by how likely the gate calls them.

    Attributes:
        count: How many there are.
        chosen: How many a token goes through.
        d, inner: Features of tokens, and within a net.
        act: Of the gated half.
    """

    count: int
    chosen: int
    d: int
    inner: int
    act: Callable[[Any], Any]

    def shapes(self, at: str) -> dict[str, tuple[int, ...]]:
        """The tensors of those called `at`."""
        found: dict[str, tuple[int, ...]] = {f"{at}.gate.weight": (self.count, self.d)}
        for n in range(self.count):
            sizes = {"w1": (self.inner, self.d), "w2": (self.d, self.inner), "w3": (self.inner, self.d)}
            found |= {f"{at}.experts.{n}.{name}.weight": shape for name, shape in sizes.items()}
        return found

    def __call__(self, parameters: Parameters, at: str, x: Any) -> Any:
        """f32[batch, steps, d] -> f32[batch, steps, d]: a row for each token and each of its experts."""
        rows = rlx.reshape(x, (-1, self.d))
        likely, which = rlx.top_k(nn.softmax(linear(parameters, f"{at}.gate", rows)), self.chosen)
        shares = likely / rlx.sum(likely, axis=-1, keepdims=True)
        expert, repeated = rlx.reshape(which, (-1,)), rlx.repeat(rows, self.chosen, axis=0)

        def product(name: str, given: Any) -> Any:
            weights = [parameters[f"{at}.experts.{n}.{name}.weight"] for n in range(self.count)]
            return rlx.grouped_matmul(given, rlx.matrix_transpose(rlx.stack(weights)), expert)

        fed = product("w2", self.act(product("w1", repeated)) * product("w3", repeated))
        mixed = rlx.sum(rlx.reshape(fed, (-1, self.chosen, self.d)) * shares[..., None], axis=1)
        return rlx.reshape(mixed, x.shape)

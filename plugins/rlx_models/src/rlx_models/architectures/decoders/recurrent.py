"""`recurrent`: the programs of a decoder whose layers keep a state of fixed size instead of the keys and values of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx_core as rlx
from rlx_models.checkpoints.config import Shapes
from rlx_models.layers.linear import Architecture, Decoding, Parameters

__all__ = ["Kept", "State", "convolved", "empty", "recurrent", "unpadded"]

State = tuple[Any, Any]
"""What a layer keeps: a pair f32[batch, rows, features], zeros before the first token."""

Kept = tuple[tuple[int, int], tuple[int, int]]
"""Rows and features of a state."""

Layers = Callable[[Parameters, Any, Any, Sequence[State]], tuple[Any, list[State]]]
"""From parameters, ids, a mask f32[batch, steps, 1] that is 0 for padding, and states to features and the states after them.

Padding, which is in front, leaves a state of zeros as it is.
"""


def empty(batch: Any, pair: Kept) -> State:
    """Return the state before the first token."""
    (rows, features), (others, more) = pair
    return rlx.zeros((batch, rows, features)), rlx.zeros((batch, others, more))


def unpadded(at: Any, steps: Any, padding: Any) -> Any:
    """Return f32[batch, steps, 1] that is 0 for those of the places from `at` on that are padding in front."""
    places = at + rlx.arange(steps)
    return rlx.astype(places[None, :] >= padding[:, None], rlx.f32)[..., None]


def convolved(parameters: Parameters, name: str, x: Any, last: Any, kernel: int) -> tuple[Any, Any]:
    """Return the causal convolution of each channel of x f32[batch, steps, channels], and its last inputs.

    Args:
        name: That of the weight f32[channels, 1, kernel], and of a bias where there is one.
        last: The inputs before the first step, f32[batch, kernel - 1, channels].
    """
    before, steps = rlx.concat([last, x], axis=1), x.shape[1]
    weights = parameters[f"{name}.weight"]
    y = sum(before[:, n : n + steps] * weights[:, 0, n] for n in range(kernel))
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y, before[:, steps:]


def recurrent(
    shapes: Shapes,
    prefix: str,
    layers: Layers,
    head: str,
    *,
    count: int,
    pair: Kept,
    unused: tuple[str, ...] = (),
) -> Architecture:
    """Return the architecture: ids i64[batch, length] -> logits f32[batch, length, words].

    Args:
        head: The tensor whose rows are multiplied with features to give logits.
        count: The number of layers.
        pair: Rows and features of what a layer keeps.
        unused: Names of tensors that a checkpoint may have besides.
    """

    def function(parameters: Parameters, ids: Any) -> Any:
        batch, steps = ids.shape
        states = [empty(batch, pair)] * count
        h, _ = layers(parameters, ids, rlx.ones((batch, steps, 1)), states)
        return h @ rlx.matrix_transpose(parameters[head])

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[State], at: Any
    ) -> tuple[Any, list[State]]:
        h, after = layers(parameters, ids, unpadded(at, ids.shape[1], padding), cache)
        return h[:, -1] @ rlx.matrix_transpose(parameters[head]), after

    decoding = Decoding(step, (pair,) * count, None)
    return Architecture(shapes, prefix, unused, {"ids": rlx.spec("i64[batch, length]")}, function, decoding)

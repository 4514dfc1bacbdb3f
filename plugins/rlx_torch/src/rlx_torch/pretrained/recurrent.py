"""`recurrent`: the programs of a decoder whose layers keep a state of fixed size instead of the keys and values of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rlx_core as rlx
from rlx_torch.pretrained.folder import Shapes
from rlx_torch.pretrained.parts import Architecture, Decoding, Parameters

__all__ = ["State", "recurrent"]

State = tuple[Any, Any]
"""What a layer keeps: a pair f32[batch, rows, features], zeros before the first token."""

Layers = Callable[[Parameters, Any, Any, Sequence[State]], tuple[Any, list[State]]]
"""From parameters, ids, a mask f32[batch, steps, 1] that is 0 for padding, and states to features and the states after them.

Padding, which is in front, leaves a state of zeros as it is.
"""


def recurrent(
    shapes: Shapes,
    prefix: str,
    layers: Layers,
    head: str,
    *,
    count: int,
    rows: tuple[int, int],
    features: tuple[int, int],
    unused: tuple[str, ...] = (),
) -> Architecture:
    """Return the architecture: ids i64[batch, length] -> logits f32[batch, length, words].

    Args:
        head: The tensor whose rows are multiplied with features to give logits.
        count: The number of layers.
        rows, features: Of the pair that a layer keeps.
        unused: Names of tensors that a checkpoint may have besides.
    """

    def function(parameters: Parameters, ids: Any) -> Any:
        batch, steps = ids.shape
        first, second = (rlx.zeros((batch, *each)) for each in zip(rows, features, strict=True))
        h, _ = layers(parameters, ids, rlx.ones((batch, steps, 1)), [(first, second)] * count)
        return h @ rlx.matrix_transpose(parameters[head])

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[State], at: Any
    ) -> tuple[Any, list[State]]:
        places = at + rlx.arange(ids.shape[1])
        real = rlx.astype(places[None, :] >= padding[:, None], rlx.f32)[..., None]
        h, after = layers(parameters, ids, real, cache)
        return h[:, -1] @ rlx.matrix_transpose(parameters[head]), after

    decoding = Decoding(step, features, count, None, rows=rows)
    return Architecture(shapes, prefix, unused, {"ids": rlx.spec("i64[batch, length]")}, function, decoding)

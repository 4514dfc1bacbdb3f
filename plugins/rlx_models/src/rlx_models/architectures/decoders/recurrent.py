"""`recurrent_lm`: the programs of a decoder whose layers have a state of fixed size instead of keys and values (Mamba, RWKV)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field

import rlx_core as rlx
from rlx_models.architectures.architecture import Architecture, Decoding, token_spec
from rlx_models.checkpoints import Shapes
from rlx_models.layers.attention import new_positions
from rlx_models.layers.linear import Parameters

State = tuple[Any, Any]
"""The state of a layer: a pair f32[batch, rows, features], zeros before the first token."""

StateShape = tuple[tuple[int, int], tuple[int, int]]
"""Rows and features of a state."""


@define
class States:
    """Recurrent states of layers that have them in addition to attention.

    Attributes:
        mask: 0 for padding, f32[batch, length, 1].
        before: States before the first token, by layer.
        after: States after the last token, appended to layer by layer.
    """

    mask: Any
    before: Sequence[State]
    after: list[State] = field(factory=list)


def zero_state(batch: Any, shape: StateShape) -> State:
    """Return the state before the first token."""
    first, second = (rlx.zeros((batch, rows, features)) for rows, features in shape)
    return first, second


def token_mask(cache_position: Any, length: Any, left_padding: Any) -> Any:
    """Return f32[batch, length, 1] that is 0 for padding among `length` tokens from `cache_position` on, i64[] or i64[batch]."""
    positions = new_positions(cache_position, length)
    positions = positions if len(positions.shape) == 2 else positions[None, :]
    return rlx.astype(positions >= left_padding[:, None], rlx.f32)[..., None]


def causal_convolution(parameters: Parameters, name: str, x: Any, previous: Any, kernel_size: int) -> tuple[Any, Any]:
    """Return the causal convolution of each channel of x f32[batch, length, channels], and its last inputs.

    Args:
        name: The name of the weight f32[channels, 1, kernel_size], and of the bias, if there is one.
        previous: Inputs before the first token, f32[batch, kernel_size - 1, channels].
    """
    inputs, length = rlx.concat([previous, x], axis=1), x.shape[1]
    weights = parameters[f"{name}.weight"]
    y = sum(inputs[:, n : n + length] * weights[:, 0, n] for n in range(kernel_size))
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y, inputs[:, length:]


class RecurrentLM(Protocol):
    """A recurrent decoder with a projection to logits.

    Attributes:
        num_layers: The number of layers.
        state: The state of a layer.
        lm_head: The table f32[vocab_size, features] of the projection to logits.
    """

    @property
    def num_layers(self) -> int: ...

    @property
    def state(self) -> StateShape: ...

    @property
    def lm_head(self) -> str: ...

    def shapes(self) -> Shapes: ...

    def hidden_states(
        self, parameters: Parameters, input_ids: Any, mask: Any, states: Sequence[State]
    ) -> tuple[Any, list[State]]:
        """Return the last hidden states, and the states after the last token.

        Args:
            mask: 0 for padding, f32[batch, length, 1]. Padding is on the left, and leaves a state of zeros unchanged.
        """


def recurrent_lm(model: RecurrentLM, prefix: str, unused: tuple[str, ...] = ()) -> Architecture:
    """Return the architecture: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size].

    Args:
        prefix, unused: See `Architecture`.
    """

    def function(parameters: Parameters, input_ids: Any) -> Any:
        batch, length = input_ids.shape
        states = [zero_state(batch, model.state)] * model.num_layers
        h, _ = model.hidden_states(parameters, input_ids, rlx.ones((batch, length, 1)), states)
        return h @ rlx.matrix_transpose(parameters[model.lm_head])

    def step(
        parameters: Parameters, input_ids: Any, left_padding: Any, cache: Sequence[State], cache_position: Any
    ) -> tuple[Any, list[State]]:
        mask = token_mask(cache_position, input_ids.shape[1], left_padding)
        h, states = model.hidden_states(parameters, input_ids, mask, cache)
        return h[:, -1] @ rlx.matrix_transpose(parameters[model.lm_head]), states

    decoding = Decoding(step, (model.state,) * model.num_layers, None)
    return Architecture(model.shapes(), prefix, unused, {"input_ids": token_spec()}, function, decoding)

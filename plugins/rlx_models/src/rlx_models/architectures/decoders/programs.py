"""`causal_lm`: the programs of a decoder, whose layers are one function for whole texts and for steps with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from attrs import define, field, frozen

import rlx_core as rlx
from rlx_models.architectures.architecture import Architecture, CacheEntry, Decoding, token_spec
from rlx_models.architectures.decoders.recurrent import State, StateShape, token_mask, zero_state
from rlx_models.checkpoints import Shapes
from rlx_models.layers.attention import CachedAttention, CausalAttention, CausalSelfAttention
from rlx_models.layers.linear import Parameters

__all__ = ["AttentionHeads", "CausalLM", "DecoderAttention", "LogitsHead", "Scores", "States", "causal_lm"]

UNUSED: Final = (
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "rotary_emb.inv_freq",
    "score.weight",
)


@frozen
class AttentionHeads:
    """The heads of a decoder.

    Attributes:
        queries, keys: The numbers of heads of queries, and of keys and values.
        key_size, value_size: Features of a head.
    """

    queries: int
    keys: int
    key_size: int
    value_size: int


@frozen
class Scores:
    """Options of attention scores.

    Attributes:
        windows: For each layer the number of positions that a query attends to, up to and including its own; `None` is all.
        scale: The multiplier; by default 1/√head_size.
        softcap: c in `c·tanh(scores / c)`.
        slopes: Slopes f32[heads] of linear biases by distance (ALiBi).
    """

    windows: tuple[int | None, ...] = ()
    scale: float | None = None
    softcap: float | None = None
    slopes: np.ndarray | None = field(default=None, eq=False)

    def bias(self, query_positions: Any, key_positions: Any) -> Any:
        """Return biases f32[1, heads, queries, keys], or `None`."""
        if self.slopes is None:
            return None
        distances = key_positions[None, :] - query_positions[:, None]
        return self.slopes[None, :, None, None] * rlx.astype(distances, rlx.f32)


class DecoderAttention:
    """Self-attention of a decoder with the options of its scores."""

    def __init__(self, attention: CausalSelfAttention, scores: Scores) -> None:
        self.positions = attention.positions
        self._attention, self._scores = attention, scores
        self._bias = scores.bias(attention.query_positions, attention.key_positions)

    def __call__(self, layer: int, q: Any, k: Any, v: Any, /, *, sinks: Any = None) -> Any:
        """Return the attention of a layer; arguments as for `CachedAttention`."""
        scores = self._scores
        window = scores.windows[layer] if scores.windows else None
        options = {"scale": scores.scale, "softcap": scores.softcap}
        return self._attention(layer, q, k, v, window=window, bias=self._bias, sinks=sinks, **options)


@frozen
class LogitsHead:
    """The projection of hidden states to logits.

    Attributes:
        weight, bias: Names of the table f32[vocab_size, features] and the bias.
        multiplier: Of the product and the bias.
        softcap: c in `c·tanh(logits / c)`, after the multiplier.
    """

    weight: str
    bias: str | None = None
    multiplier: float = 1.0
    softcap: float | None = None

    def __call__(self, parameters: Parameters, h: Any) -> Any:
        x = h @ rlx.matrix_transpose(parameters[self.weight])
        x = x if self.bias is None else x + parameters[self.bias]
        x = x if self.multiplier == 1.0 else x * self.multiplier
        return x if self.softcap is None else rlx.tanh(x / self.softcap) * self.softcap


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


class CausalLM(Protocol):
    """A decoder with a projection to logits.

    Attributes:
        heads: Heads of the cache's keys and values.
        num_layers: The number of layers.
        max_positions: The maximum length of a text, or `None`.
        scores: Options of attention scores.
        state: The recurrent state of a layer, or `None`.
        logits: The projection to logits.
    """

    @property
    def heads(self) -> AttentionHeads: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def max_positions(self) -> int | None: ...

    @property
    def scores(self) -> Scores: ...

    @property
    def state(self) -> StateShape | None: ...

    @property
    def logits(self) -> LogitsHead: ...

    def shapes(self) -> Shapes: ...

    def hidden_states(
        self, parameters: Parameters, input_ids: Any, attention: DecoderAttention, states: States
    ) -> Any: ...


def causal_lm(model: CausalLM, prefix: str, unused: tuple[str, ...] = ()) -> Architecture:
    """Return the architecture of a decoder: input_ids i64[batch, length] -> logits f32[batch, length, vocab_size].

    Args:
        prefix, unused: See `Architecture`.
    """
    heads, state, count = model.heads, model.state, model.num_layers

    def function(parameters: Parameters, input_ids: Any) -> Any:
        batch, length = input_ids.shape
        attention = DecoderAttention(CausalAttention(length, heads.queries, heads.keys), model.scores)
        states = States(None, ())
        if state is not None:
            states = States(rlx.ones((batch, length, 1)), [zero_state(batch, state)] * count)
        return model.logits(parameters, model.hidden_states(parameters, input_ids, attention, states))

    def step(
        parameters: Parameters,
        input_ids: Any,
        left_padding: Any,
        cache: Sequence[tuple[Any, Any]],
        cache_position: Any,
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        length = input_ids.shape[1]
        cached = CachedAttention(cache[:count], cache_position, left_padding, length, heads.queries, heads.keys)
        mask = None if state is None else token_mask(cache_position, length, left_padding)
        states = States(mask, cache[count:])
        attention = DecoderAttention(cached, model.scores)
        h = model.hidden_states(parameters, input_ids, attention, states)
        return model.logits(parameters, h[:, -1]), [*cached.updated, *states.after]

    entry: CacheEntry = ((None, heads.keys * heads.key_size), (None, heads.keys * heads.value_size))
    cache = (entry,) * count + (() if state is None else (state,) * count)
    shapes = model.shapes()
    unread_head = () if "lm_head.weight" in shapes else ("lm_head.weight",)
    return Architecture(
        shapes,
        prefix,
        (*UNUSED, *unread_head, *unused),
        {"input_ids": token_spec()},
        function,
        Decoding(step, cache, model.max_positions),
    )

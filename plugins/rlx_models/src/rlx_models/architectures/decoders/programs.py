"""`decoder`: the programs of a decoder from its layers, which are one function for whole texts and for steps with a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from attrs import define, field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.attention import Cached
from rlx_models.architectures.decoders.recurrent import Kept, State, empty, unpadded
from rlx_models.layers.attention_sinks import hidden_by, with_sink
from rlx_models.checkpoints.config import Shapes
from rlx_models.layers.linear import Architecture, Decoding, Parameters

__all__ = ["DecoderAttention", "HeadCounts", "LogitsHead", "ScoreOptions", "States", "decoder"]

UNUSED = (
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "rotary_emb.inv_freq",
    "score.weight",
)

IDS = rlx.spec("i64[batch, length]")


class DecoderAttention(Protocol):
    """Attention of a layer by its number, of queries, keys and values `[batch, steps, heads · head]`.

    `sinks` f32[heads] are scores for no key.
    """

    def __call__(self, number: int, q: Any, k: Any, v: Any, /, *, sinks: Any = None) -> Any: ...


@frozen
class HeadCounts:
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
class ScoreOptions:
    """How layers score keys.

    Attributes:
        windows: Of each layer, how many positions, its own included, a query sees; `None` is all before it.
        scale: The multiplier of scores; by default one over the root of a head's features.
        cap: c in `c·tanh(scores / c)`.
        slopes: The cost of a step of distance for each head, f32[heads].
    """

    windows: tuple[int | None, ...] = ()
    scale: float | None = None
    cap: float | None = None
    slopes: np.ndarray | None = field(default=None, eq=False)

    def window(self, number: int) -> int | None:
        return self.windows[number] if self.windows else None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `nn.attention` for scores."""
        return {"scale": self.scale, "softcap": self.cap}

    def biases(self, queries: Any, keys: Any) -> Any:
        """Return biases f32[1, heads, queries, keys] of scores between positions; `None` where distances cost nothing."""
        if self.slopes is None:
            return None
        return self.slopes[None, :, None, None] * rlx.astype(keys[None, :] - queries[:, None], rlx.f32)


ORDINARY: Final = ScoreOptions()


@frozen
class LogitsHead:
    """The product of features with rows of a table.

    Attributes:
        weight, bias: Names of the table, and of what is added.
        factor: The multiplier.
        cap: c in `c·tanh(logits / c)`, after the multiplier.
    """

    weight: str
    bias: str | None = None
    factor: float = 1.0
    cap: float | None = None

    def __call__(self, parameters: Parameters, h: Any) -> Any:
        x = h @ rlx.matrix_transpose(parameters[self.weight])
        x = x if self.bias is None else x + parameters[self.bias]
        x = x if self.factor == 1.0 else x * self.factor
        return x if self.cap is None else rlx.tanh(x / self.cap) * self.cap


@define
class States:
    """The states of layers that have them beside attention.

    Attributes:
        real: 0 for padding, f32[batch, steps, 1].
        before: Of each layer, before the first step.
        after: Behind the last step, of the layers that ran.
    """

    real: Any
    before: Sequence[State]
    after: list[State] = field(factory=list)


Layers = Callable[[Parameters, Any, Any, DecoderAttention, States], Any]
"""From parameters, ids, their positions, attention and states to the features behind the last norm."""


def decoder(
    shapes: Shapes,
    prefix: str,
    layers: Layers,
    logits: LogitsHead,
    heads: HeadCounts,
    *,
    count: int,
    positions: int | None,
    scores: ScoreOptions = ORDINARY,
    state: Kept | None = None,
    unused: tuple[str, ...] = (),
) -> Architecture:
    """Return the architecture of a decoder.

    Args:
        count: The number of layers.
        positions: The most tokens of a text, where there is such a number.
        scores: How layers score keys, where that is not as usual.
        state: Rows and features of what each layer keeps beside keys and values.
        unused: Beginnings or ends of names of tensors that a checkpoint may have besides.
    """

    def function(parameters: Parameters, ids: Any) -> Any:
        places = rlx.arange(ids.shape[1])
        biases = scores.biases(places, places)

        def attend(number: int, q: Any, k: Any, v: Any, /, *, sinks: Any = None) -> Any:
            window = scores.window(number)
            options = {"num_heads": heads.queries, "num_kv_heads": heads.keys, "causal": True, **scores.options}
            if sinks is None:
                before = None if window is None else window - 1  # besides its own
                return nn.attention(q, k, v, window=before, bias=biases, **options)
            mask = None if window is None else hidden_by(window, places, places)
            k, v, mask, bias = with_sink(sinks, k, v, mask, biases)
            return nn.attention(q, k, v, mask=mask, bias=bias, **options)

        states = States(None, ())
        if state is not None:
            batch, steps = ids.shape
            states = States(rlx.ones((batch, steps, 1)), [empty(batch, state)] * count)
        return logits(parameters, layers(parameters, ids, places, attend, states))

    def step(
        parameters: Parameters, ids: Any, padding: Any, cache: Sequence[tuple[Any, Any]], at: Any
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        cached = Cached(cache[:count], at, padding, ids.shape[1], heads.queries, heads.keys)
        biases = scores.biases(cached.places, cached.room)

        def attend(number: int, q: Any, k: Any, v: Any, /, *, sinks: Any = None) -> Any:
            return cached(number, q, k, v, window=scores.window(number), bias=biases, sinks=sinks, **scores.options)

        states = States(None if state is None else unpadded(at, ids.shape[1], padding), cache[count:])
        h = layers(parameters, ids, cached.positions, attend, states)
        return logits(parameters, h[:, -1]), [*cached.kept, *states.after]

    pair = ((None, heads.keys * heads.key_size), (None, heads.keys * heads.value_size))
    pairs = (pair,) * count + (() if state is None else (state,) * count)
    more = () if "lm_head.weight" in shapes else ("lm_head.weight",)
    return Architecture(
        shapes, prefix, (*UNUSED, *more, *unused), {"ids": IDS}, function, Decoding(step, pairs, positions)
    )

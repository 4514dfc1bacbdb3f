"""Attention of decoders: its heads, the options of its scores, and self-attention with these options."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_models.layers.attention import CausalSelfAttention


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
class ScoreOptions:
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
        """Return biases f32[1, heads, queries, keys], or `None`; of query positions i64[batch, queries] f32[batch, ..]."""
        if self.slopes is None:
            return None
        if len(query_positions.shape) == 2:
            distances = key_positions[None, None, None, :] - query_positions[:, None, :, None]
            return self.slopes[None, :, None, None] * rlx.astype(distances, rlx.f32)
        distances = key_positions[None, :] - query_positions[:, None]
        return self.slopes[None, :, None, None] * rlx.astype(distances, rlx.f32)


class DecoderAttention:
    """Self-attention of a decoder with the options of its scores."""

    def __init__(self, attention: CausalSelfAttention, scores: ScoreOptions) -> None:
        self.positions = attention.positions
        self._attention, self._scores = attention, scores
        self._bias = scores.bias(attention.query_positions, attention.key_positions)

    def __call__(self, layer: int, q: Any, k: Any, v: Any, /, *, sinks: Any = None) -> Any:
        """Return the attention of a layer; arguments as for `CachedAttention`."""
        scores = self._scores
        window = scores.windows[layer] if scores.windows else None
        options = {"scale": scores.scale, "softcap": scores.softcap}
        return self._attention(layer, q, k, v, window=window, bias=self._bias, sinks=sinks, **options)

"""Attention of a text that grows: to a cache of keys and values with room for those to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_models.layers.attention_sinks import hidden_by, with_sink

__all__ = ["Cached"]


class Cached:
    """Attention of new tokens to a cache, into which their keys and values go first; one for each traced step.

    Args:
        cache: Keys and values f32[batch, room, features] of each layer.
        at: The place i64[] of the first new token.
        padding: How many places i64[batch] at the beginning of the room nobody sees.
        steps: How many tokens are new.
        heads, kv_heads: HeadCounts of queries, and of keys and values.

    Attributes:
        places: Those of the new tokens in the room, i64[steps].
        room: All places, i64[room].
        kept: The cache with the new tokens, layer by layer as they are asked for.
    """

    def __init__(
        self, cache: Sequence[tuple[Any, Any]], at: Any, padding: Any, steps: Any, heads: int, kv_heads: int
    ) -> None:
        self.room = rlx.arange(cache[0][0].shape[1])
        self.places = at + rlx.arange(steps)
        self.kept: list[tuple[Any, Any]] = []
        self._cache, self._at, self._padding = cache, at, padding
        self._heads, self._kv_heads = heads, kv_heads
        reached = self.room[None, :] <= self.places[:, None]
        real = self.room[None, None, None, :] >= padding[:, None, None, None]
        self._mask = rlx.logical_and(real, reached[None, None])

    @property
    def positions(self) -> Any:
        """What the new tokens count as in their texts, i64[batch, steps]."""
        return rlx.maximum(self.places[None, :] - self._padding[:, None], 0)

    def __call__(
        self,
        number: int,
        q: Any,
        k: Any,
        v: Any,
        /,
        *,
        window: int | None = None,
        bias: Any = None,
        sinks: Any = None,
        **options: Any,
    ) -> Any:
        """Return the attention of layer `number`; `options` are further arguments of `nn.attention`.

        Args:
            window: How many places, that of a token included, it sees; `None` is all before it.
            bias: Added to scores.
            sinks: ScoreOptions f32[heads] for no key.
        """
        pair = zip(self._cache[number], (k, v), strict=True)
        keys, values = (nn.update_cache(old, new, self._at) for old, new in pair)
        self.kept.append((keys, values))
        mask = self._mask
        if window is not None:
            mask = rlx.logical_and(mask, hidden_by(window, self.places, self.room))
        if sinks is not None:
            keys, values, mask, bias = with_sink(sinks, keys, values, mask, bias)
        heads, kv_heads = self._heads, self._kv_heads
        return nn.attention(q, keys, values, mask=mask, bias=bias, num_heads=heads, num_kv_heads=kv_heads, **options)

"""Causal self-attention of whole sequences, and of new tokens to a cache of keys and values: two classes, one interface.

Attention sinks are a score of each head without a key, so that the weights of the keys sum to less than 1: the implementation
adds a key of zeros, whose score is 0 and whose bias is the sink, with a value of zeros.

Source:
    Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", arXiv:2309.17453, section 3.3; OpenAI 2025,
    "gpt-oss-120b & gpt-oss-20b Model Card", arXiv:2508.10925, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn


class CausalAttention:
    """Causal self-attention of whole sequences.

    Args:
        length: The number of tokens.
        num_heads, num_kv_heads: Heads of queries, and of keys and values.

    Attributes:
        positions: Positions of tokens in their texts, i64[length].
        query_positions, key_positions: Positions that distances of queries and keys are computed from, i64[length].
    """

    def __init__(self, length: Any, num_heads: int, num_kv_heads: int) -> None:
        self.positions = self.query_positions = self.key_positions = rlx.arange(length)
        self._options: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "is_causal": True}

    def __call__(
        self,
        layer: int,
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
        """Return the attention of a layer; arguments as for `CachedAttention`."""
        if sinks is None:
            distance = None if window is None else window - 1
            return nn.attention(q, k, v, window=distance, bias=bias, **self._options, **options)
        mask = None if window is None else window_mask(window, self.positions, self.positions)
        k, v, mask, bias = add_sink(sinks, k, v, mask, bias)
        return nn.attention(q, k, v, mask=mask, bias=bias, **self._options, **options)


class CachedAttention:
    """Self-attention of new tokens to a cache, which is updated with their keys and values first; one for each traced step.

    The new tokens are the last valid keys of the cache, and attention reads no later ones: a step costs as much as the cache
    has tokens, whatever its capacity. A cache of f16 or bf16 is read as it is: queries are converted to its dtype, and scores,
    weights and sums are f32. A cache of codes has their scales, too (`head_codes`); attention multiplies scores and weights by
    them.

    Args:
        cache: Keys and values f32, f16 or bf16[batch, max_length, features] of each layer; or codes i8 of both, followed by the
            scales f32[batch, max_length, num_kv_heads] of both.
        cache_position: Index i64[] of the first new token in the cache, or of each batch entry's, i64[batch].
        left_padding: Number i64[batch] of padding tokens at the start of the cache, which are masked.
        length: The number of new tokens.
        num_heads, num_kv_heads: Heads of queries, and of keys and values.

    Attributes:
        query_positions: Indices of the new tokens in the cache, i64[length] or i64[batch, length].
        key_positions: All indices of the cache, i64[max_length].
        updated: The cache with the new tokens, appended to layer by layer.
    """

    def __init__(
        self,
        cache: Sequence[tuple[Any, ...]],
        cache_position: Any,
        left_padding: Any,
        length: Any,
        num_heads: int,
        num_kv_heads: int,
    ) -> None:
        self.key_positions = rlx.arange(cache[0][0].shape[1])
        self.query_positions = new_positions(cache_position, length)
        self.updated: list[tuple[Any, ...]] = []
        self._cache, self._cache_position, self._left_padding = cache, cache_position, left_padding
        self._options: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "is_causal": True}
        self._cached_tokens = cache_position + length
        self._is_token = self.key_positions[None, None, None, :] >= left_padding[:, None, None, None]

    @property
    def positions(self) -> Any:
        """Positions of the new tokens in their texts, i64[batch, length]."""
        query_positions = (
            self.query_positions if len(self.query_positions.shape) == 2 else self.query_positions[None, :]
        )
        return rlx.maximum(query_positions - self._left_padding[:, None], 0)

    def __call__(
        self,
        layer: int,
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
        """Return the attention of a layer.

        Args:
            layer: The layer's index.
            q, k, v: Queries, keys and values of the new tokens, f32[batch, length, heads · head_size].
            window: The number of keys that a query attends to, up to and including its own position; `None` is all.
            bias: Added to scores.
            sinks: Scores f32[heads] of an additional key with a value of zero.
            options: Further arguments of `nn.attention`.
        """
        entry = self._cache[layer]
        new = (k, v) if len(entry) == 2 else codes_and_scales(k, v, self._options["num_kv_heads"])
        pairs = zip(entry, new, strict=True)
        updated = [nn.update_cache(old, narrowed(x, old.dtype), self._cache_position) for old, x in pairs]
        self.updated.append(tuple(updated))
        keys, values, *scales = updated
        mask, valid_keys = self._is_token, self._cached_tokens
        distance = None if window is None else window - 1
        if sinks is not None:
            if window is not None:
                mask = rlx.logical_and(mask, window_mask(window, self.query_positions, self.key_positions))
            keys, values, mask, bias = add_sink(sinks, keys, values, mask, bias)
            scales = [with_first_key(each) for each in scales]
            distance, valid_keys = None, valid_keys + 1
        query = q if scales else narrowed(q, keys.dtype)
        if scales:
            options |= {"key_scales": scales[0], "value_scales": scales[1]}
        result = nn.attention(
            query,
            keys,
            values,
            mask=mask,
            bias=bias,
            window=distance,
            key_value_seq_lengths=valid_keys,
            **self._options,
            **options,
        )
        return result if query is q else rlx.astype(result, q.dtype)


CausalSelfAttention = CausalAttention | CachedAttention
"""Self-attention of a decoder: of whole sequences, or of new tokens to a cache."""


def narrowed(x: Any, dtype: Any) -> Any:
    """Return an array in the dtype of a cache, unless that has more bytes."""
    return x if dtype == x.dtype or dtype.itemsize > x.dtype.itemsize else rlx.astype(x, dtype)


def codes_and_scales(k: Any, v: Any, heads: int) -> tuple[Any, Any, Any, Any]:
    """Return the codes of keys and values, and then their scales; see `head_codes`."""
    (keys, key_scales), (values, value_scales) = head_codes(k, heads), head_codes(v, heads)
    return keys, values, key_scales, value_scales


def head_codes(x: Any, heads: int) -> tuple[Any, Any]:
    """Return codes from -127 to 127 and scales: a head of a token is its codes times its scale, which is max |x| / 127.

    Args:
        x: f32[batch, length, heads · head_size].

    Returns:
        i8[batch, length, heads · head_size] and f32[batch, length, heads].
    """
    by_head = rlx.reshape(x, (*x.shape[:-1], heads, -1))
    scales = rlx.max(rlx.abs(by_head), axis=-1) / 127.0
    inverse = rlx.where(scales > 0, 1 / scales, 0.0)
    codes = rlx.astype(rlx.round(by_head * inverse[..., None]), rlx.i8)
    return rlx.reshape(codes, x.shape), scales


# ------------------------------------------------------------------------------------- positions and sinks


def new_positions(cache_position: Any, length: Any) -> Any:
    """Return the indices of `length` tokens from `cache_position` on: i64[length], or i64[batch, length] for i64[batch]."""
    if len(cache_position.shape) == 1:
        return cache_position[:, None] + rlx.arange(length)
    return cache_position + rlx.arange(length)


def window_mask(window: int, query_positions: Any, key_positions: Any) -> Any:
    """Return the mask that is false for keys `window` or more positions before a query.

    Args:
        query_positions: i64[queries], or i64[batch, queries].
        key_positions: i64[keys].

    Returns:
        bool[1, 1, queries, keys], or bool[batch, 1, queries, keys].
    """
    if len(query_positions.shape) == 2:
        return key_positions[None, None, None, :] > query_positions[:, None, :, None] - window
    return (key_positions[None, :] > query_positions[:, None] - window)[None, None]


def add_sink(sinks: Any, k: Any, v: Any, mask: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
    """Return keys, values, mask and bias with the sink as the first key: causal attention is aligned at the last.

    Args:
        sinks: Scores f32[heads].
        k, v: f32[batch, keys, features].
        mask: bool[batch or 1, 1, queries, keys], or `None`.
        bias: f32[1 or batch, heads, queries, keys], or `None`.
    """
    k, v = with_first_key(k), with_first_key(v)
    mask = None if mask is None else rlx.pad(mask, ((0, 0), (0, 0), (0, 0), (1, 0)), constant_values=True)
    column = rlx.reshape(sinks, (1, -1, 1, 1))
    if bias is None:
        is_sink = rlx.equal(rlx.arange(k.shape[1]), 0)
        return k, v, mask, rlx.where(is_sink, column, 0.0)
    return k, v, mask, rlx.concat([rlx.broadcast_to(column, (*bias.shape[:-1], 1)), bias], axis=-1)


def with_first_key(x: Any) -> Any:
    """Return keys, values or scales [batch, keys, features] with zeros before them."""
    return rlx.pad(x, ((0, 0), (1, 0), (0, 0)))

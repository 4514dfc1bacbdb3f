"""Attention sinks: a score of each head without a key, so that the weights of the keys sum to less than 1.

The implementation adds a key of zeros, whose score is 0 and whose bias is the sink, with a value of zeros.

Source:
    Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", arXiv:2309.17453, section 3.3; OpenAI 2025,
    "gpt-oss-120b & gpt-oss-20b Model Card", arXiv:2508.10925, section 2.
"""

from __future__ import annotations

from typing import Any

import rlx_core as rlx

__all__ = ["add_sink", "window_mask"]


def window_mask(window: int, query_positions: Any, key_positions: Any) -> Any:
    """Return the mask bool[1, 1, queries, keys] that is false for keys `window` or more positions before a query."""
    return (key_positions[None, :] > query_positions[:, None] - window)[None, None]


def add_sink(sinks: Any, k: Any, v: Any, mask: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
    """Return keys, values, mask and bias with the sink as the first key: causal attention is aligned at the last.

    Args:
        sinks: Scores f32[heads].
        k, v: f32[batch, keys, features].
        mask: bool[batch or 1, 1, queries, keys], or `None`.
        bias: f32[1, heads, queries, keys], or `None`.
    """
    k, v = (rlx.pad(x, ((0, 0), (1, 0), (0, 0))) for x in (k, v))
    mask = None if mask is None else rlx.pad(mask, ((0, 0), (0, 0), (0, 0), (1, 0)), constant_values=True)
    column = rlx.reshape(sinks, (1, -1, 1, 1))
    if bias is None:
        is_sink = rlx.equal(rlx.arange(k.shape[1]), 0)
        return k, v, mask, rlx.where(is_sink, column, 0.0)
    return k, v, mask, rlx.concat([rlx.broadcast_to(column, (*bias.shape[:-1], 1)), bias], axis=-1)

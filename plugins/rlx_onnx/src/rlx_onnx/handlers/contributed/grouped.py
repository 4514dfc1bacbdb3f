"""`GroupQueryAttention` of exported decoders: a KV cache, rotary embedding, and queries that share keys in groups."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.ir.dims import Dim, smaller
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.attention import by_heads, joined_heads
from rlx_onnx.handlers.contributed.operations import MICROSOFT, turned_by
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import traced


@handles("GroupQueryAttention", domain=MICROSOFT, takes_sizes=True)
def group_query_attention(
    node: OnnxNode,
    q: Any,
    k: Any = None,
    v: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    ends: Any = None,
    total: Any = None,
    cos: Any = None,
    sin: Any = None,
    places: Any = None,
    bias: Any = None,
    sink: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """Each query sees the keys up to its own place; new keys and values are written behind those of their sequence.

    `ends` are the places of the last key of each sequence, so that sequences may have pasts of different lengths.
    """
    heads, shared = node.get("num_heads"), node.get("kv_num_heads")
    if sink is not None or k_scale is not None or v_scale is not None or node.get("smooth_softmax", 0):
        node.refuse("a sink of attention, or a cache of few bits", "caches of floats and a plain softmax")
    if node.wants(3):
        node.refuse("scores as a result", "the layer and its caches")
    if k is None:
        n = q.shape[2] // (heads + 2 * shared)
        q, k, v = (q[:, :, : heads * n], q[:, :, heads * n : (heads + shared) * n], q[:, :, (heads + shared) * n :])
    q, k, v = by_heads(q, heads), by_heads(k, shared), by_heads(v, shared)
    batch, _, length, n = q.shape
    # A prompt that is shorter than the longest one ends before the others: nothing lies before it either.
    before = rlx.maximum(rlx.reshape(rlx.astype(traced(ends), rlx.i64), (batch, 1)) + 1 - length, 0)
    steps = before + rlx.expand_dims(rlx.arange(length), axis=0)
    if node.get("do_rotary", 0):
        position_ids, pairs = steps if places is None else places, bool(node.get("rotary_interleaved", 0))
        q, k = (turned_by(each, position_ids, cos, sin, 2 * cos.shape[1], in_pairs=pairs) for each in (q, k))
    if past_k is not None:
        size = _room(past_k.shape[2], node.dims(6, "total_sequence_length")[0])
        k, v = (_written(old, new, steps, size) for old, new in ((past_k, k), (past_v, v)))
    keys = rlx.reshape(rlx.arange(k.shape[2]), (1, 1, k.shape[2]))
    seen = keys <= rlx.expand_dims(steps, axis=2)
    window = node.get("local_window_size", -1)
    if window >= 0:
        seen = rlx.logical_and(seen, rlx.expand_dims(steps, axis=2) - keys < window)
    y = rlx.attention(
        *(q, k, v),
        mask=rlx.expand_dims(seen, axis=1),
        bias=bias,
        layout="bhsd",
        scale=node.get("scale", 0.0) or None,
        softcap=node.get("softcap", 0.0) or None,
    )
    return (joined_heads(y), k, v)[: max(node.count, 1)]


def _room(past: Dim, total: Dim) -> Dim:
    """Return the number of keys of the updated cache: the present ones, or the total number if that is larger."""
    return past + total - smaller(past, total)


def _written(cache: Any, new: Any, steps: Any, size: Dim) -> Any:
    """Return a cache `[batch, heads, time, n]` of another size, with rows of each sequence at its own steps."""
    batch = new.shape[0]
    full = rlx.pad(cache, [(0, 0), (0, 0), (0, size - cache.shape[2]), (0, 0)])
    rows = rlx.broadcast_to(rlx.expand_dims(rlx.arange(batch), axis=1), steps.shape)
    places = rlx.stack([rows, rlx.astype(steps, rlx.i64)], axis=-1)
    result = rlx.scatter_nd(
        rlx.moveaxis(full, 2, 1), places, rlx.astype(rlx.moveaxis(new, 2, 1), dtype_of(cache.dtype))
    )
    return rlx.moveaxis(result, 1, 2)

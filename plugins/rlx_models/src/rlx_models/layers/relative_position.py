"""Biases of scores by how far a key is from its query, in kinds: near ones by themselves, far ones together."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn

__all__ = ["bias", "buckets"]


def bias(table: Any, reach: int, queries: Any, keys: Any, *, is_causal: bool) -> Any:
    """The bias f32[1, heads, queries, keys] of places i64[queries] and i64[keys].

    Args:
        table: That of each kind, f32[kinds, heads].
        reach: The distance from which on all are of one kind.
        is_causal: Whether keys behind their query are hidden.
    """
    by_distance = nn.embedding(buckets(table.shape[0], reach, is_causal=is_causal), table)
    distances = rlx.clip(keys[None, :] - queries[:, None], -reach, reach) + reach
    return rlx.permute_dims(nn.embedding(distances, by_distance), (2, 0, 1))[None]


def buckets(count: int, reach: int, *, is_causal: bool) -> np.ndarray:
    """The kind i64[2 · reach + 1] of each distance of a key from its query, from -reach to reach.

    Half of the kinds that a direction has are for one distance each; the others grow with its logarithm. Where keys behind the
    query are hidden, all kinds are for those before it.
    """
    distances = np.arange(-reach, reach + 1)
    own = count if is_causal else count // 2
    far = np.maximum(-distances, 0) if is_causal else np.abs(distances)
    exact = own // 2
    # In f32, as the checkpoints were trained: an ulp decides at the edges of a kind.
    growth = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(np.log(reach / exact))
    grown = exact + (growth * np.float32(own - exact)).astype(np.int64)
    kinds = np.where(far < exact, far, np.minimum(grown, own - 1))
    return kinds if is_causal else kinds + own * (distances > 0)

"""Relative position biases of attention scores by buckets of distances (T5, MPNet).

Source:
    Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    arXiv:1910.10683, section 2.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn


def relative_position_bias(
    table: Any, max_distance: int, query_positions: Any, key_positions: Any, *, is_causal: bool
) -> Any:
    """Return the bias f32[1, heads, queries, keys] for positions i64[queries] and i64[keys].

    Args:
        table: Biases of each bucket, f32[buckets, heads].
        max_distance: All larger distances are in one bucket.
        is_causal: Whether keys after their query are masked.
    """
    by_distance = nn.embedding(relative_position_buckets(table.shape[0], max_distance, is_causal=is_causal), table)
    distances = rlx.clip(key_positions[None, :] - query_positions[:, None], -max_distance, max_distance) + max_distance
    return rlx.permute_dims(nn.embedding(distances, by_distance), (2, 0, 1))[None]


def relative_position_buckets(num_buckets: int, max_distance: int, *, is_causal: bool) -> np.ndarray:
    """Return the bucket i64[2 · max_distance + 1] of each distance of a key from its query, from -max_distance on.

    Half of the buckets of a direction are for one distance each; the others grow with the logarithm of the distance. With
    causal attention, all buckets are for keys before the query.
    """
    distances = np.arange(-max_distance, max_distance + 1)
    count = num_buckets if is_causal else num_buckets // 2
    magnitudes = np.maximum(-distances, 0) if is_causal else np.abs(distances)
    exact = count // 2
    # In f32, as the checkpoints were trained: an ulp decides at the edges of a bucket.
    growth = np.log(np.maximum(magnitudes, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        np.log(max_distance / exact)
    )
    logarithmic = exact + (growth * np.float32(count - exact)).astype(np.int64)
    buckets = np.where(magnitudes < exact, magnitudes, np.minimum(logarithmic, count - 1))
    return buckets if is_causal else buckets + count * (distances > 0)

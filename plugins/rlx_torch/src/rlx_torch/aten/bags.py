"""Bags of embeddings: sums, means and largest of rows of a table."""

from __future__ import annotations

import math
from typing import Any

import rlx_core as rlx
from rlx_core.ops import scatter_add
from rlx_torch.aten.context import expect_unread, refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means (1) or largest (2) of rows of a table, one for each bag of indices from an offset to the next."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    n = indices.shape[0]
    starts = convert(offsets[:bags] if include_last_offset else offsets, rlx.i64)
    begun = rlx.greater_equal(rlx.reshape(rlx.arange(n), (n, 1)), starts)
    bag = rlx.sum(convert(begun, rlx.i64), axis=1) - 1
    mask = rlx.not_equal(indices, as_value(padding_idx, indices.dtype))
    result = rlx.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        result = result * rlx.expand_dims(per_sample_weights, axis=-1)
    lost = as_value(-math.inf if mode == 2 else 0, result.dtype)
    result = rlx.where(rlx.expand_dims(mask, axis=-1), result, lost)
    counts = scatter_add(convert(mask, result.dtype), bag, bags)
    sizes = scatter_add(convert(mask, rlx.i64), bag, bags)
    some = rlx.expand_dims(rlx.greater(counts, as_value(0, counts.dtype)), axis=-1)
    if mode == 2:
        expect_unread(3, instead="mode='mean' or 'sum' where a gradient is needed, or rlx.grad of the module")
        start = rlx.broadcast_to(lost, (bags, weight.shape[1]))
        y = rlx.where(some, rlx.scatter(start, bag, result, mode="max"), as_value(0, result.dtype))
    else:
        y = scatter_add(result, bag, bags)
        if mode == 1:
            y = y / rlx.expand_dims(rlx.maximum(counts, as_value(1, counts.dtype)), axis=-1)
    return y, bag, sizes, rlx.zeros((bags,), dtype=rlx.i64)


@aten("_embedding_bag_backward")
def embedding_bag_backward(
    g: Any, indices: Any, offsets: Any, bag: Any, sizes: Any, largest: Any, count: Any, scale_grad_by_freq: bool,
    mode: int, sparse: bool, per_sample_weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if mode == 2 or scale_grad_by_freq:
        refuse("mode='mean' or 'sum', without scale_grad_by_freq")
    if mode == 1:
        g = g / rlx.expand_dims(convert(rlx.maximum(sizes, as_value(1, sizes.dtype)), g.dtype), axis=-1)
    rows_ = rlx.take(g, bag, axis=0)
    if per_sample_weights is not None:
        rows_ = rows_ * rlx.expand_dims(per_sample_weights, axis=-1)
    mask = rlx.expand_dims(rlx.not_equal(indices, as_value(padding_idx, indices.dtype)), axis=-1)
    return scatter_add(rlx.where(mask, rows_, as_value(0, g.dtype)), indices, count)

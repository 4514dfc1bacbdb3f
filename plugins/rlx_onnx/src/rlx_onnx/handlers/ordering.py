"""Operations on the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_onnx.walking.node import Node
from rlx_onnx.walking.table import handles


@handles("TopK", takes_sizes=False)
def top_k(node: Node, x: Any, k: Any) -> Any:
    """The largest or smallest elements of an axis in order, and where they are."""
    count = int(node.scalar(1, "k"))
    values, places = rlx.top_k(x, count, axis=node.get("axis", -1), largest=bool(node.get("largest", 1)))
    return values, rlx.astype(places, rlx.i64)


@handles("Unique")
def unique(node: Node, x: Any) -> Any:
    """The different elements, or slices of an axis; how many those are must be known."""
    data = node.known(0, "data")
    axis = node.get("axis")
    found, first, back, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    if not node.get("sorted", 1):
        order = np.argsort(first)
        found = np.take(found, order, axis=0 if axis is None else axis)
        first, counts, back = first[order], counts[order], np.argsort(order)[back.ravel()]
    return found, first.astype(np.int64), back.ravel().astype(np.int64), counts.astype(np.int64)

"""Operations on the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import Dim, product
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import traced


@handles("TopK", takes_sizes=True)
def top_k(node: OnnxNode, x: Any, k: Any) -> Any:
    """The largest or smallest elements of an axis in order, and their positions; a computed `k` is read on the host."""
    count = node.dim(1, "k")
    values, places = rlx.top_k(traced(x), count, axis=node.get("axis", -1), largest=bool(node.get("largest", 1)))
    return values, rlx.astype(places, rlx.i64)


@handles("Unique", finds_sizes=True)
def unique(node: OnnxNode, x: Any) -> Any:
    """The different elements, or slices of an axis: where each is first, which one every element is, how often it is there."""
    axis, is_sorted = node.get("axis"), bool(node.get("sorted", 1))
    if axis is not None:
        node.axis(axis, x.ndim)

    def types(n: Dim) -> list[rlx.TensorType]:
        places = rlx.TensorType(rlx.i64, (n,))
        if axis is None:
            return [x.type.with_shape((n,)), places, places.with_shape((product(x.shape),)), places]
        position = axis % x.ndim
        result = x.type.with_shape((*x.shape[:position], n, *x.shape[position + 1 :]))
        return [result, places, places.with_shape((x.shape[position],)), places]

    return node.on_host(lambda data: different(data, axis, is_sorted), types, 0)


def different(data: np.ndarray, axis: int | None, is_sorted: bool) -> tuple[np.ndarray, ...]:
    """The different elements or slices of an array, in order or as they come first."""
    result, first, back, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    back = back.ravel()
    if not is_sorted:
        order = np.argsort(first)
        result = np.take(result, order, axis=0 if axis is None else axis)
        first, counts, back = first[order], counts[order], np.argsort(order)[back]
    return result, *(each.astype(np.int64) for each in (first, back, counts))

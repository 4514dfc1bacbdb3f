"""Operations that read and write elements by their numbers, and on the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.shapes import on_value
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import is_sizes, settled, traced

MODES = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@handles("Gather", takes_sizes=True, takes_coded=True)
def gather(node: OnnxNode, x: Any, indices: Any) -> Any:
    axis = node.axis(node.get("axis", 0), len(x.shape))
    if is_sizes(x) and isinstance(indices, np.ndarray):
        return settled(np.asarray(np.take(x, indices, axis=axis), object))
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        position, size = int(indices), x.shape[axis]
        if isinstance(size, int) and not -size <= position < size:
            raise FormatError(f"{node}: index {position} is outside of an axis of {size}")
        return on_value(traced(x), lambda data: data[(slice(None),) * axis + (position,)])
    return on_value(traced(x), lambda data: rlx.take(data, counted(indices, data.shape[axis]), axis=axis))


def counted(indices: Any, size: Dim) -> Any:
    """Return non-negative indices; known indices that are not negative are unchanged."""
    if isinstance(indices, np.ndarray) and (indices.size == 0 or indices.min() >= 0):
        return indices
    return rlx.where(indices < 0, indices + (size if isinstance(size, int) else rlx.asarray(size)), indices)


@handles("GatherElements")
def gather_elements(node: OnnxNode, x: Any, indices: Any) -> Any:
    axis = node.axis(node.get("axis", 0), x.ndim)
    return rlx.take_along_axis(_cropped(x, indices, axis), counted(indices, x.shape[axis]), axis=axis)


def _cropped(x: Any, indices: Any, axis: int) -> Any:
    """`x` as far as there are indices on the other axes."""
    index = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))
    same = all(i == axis or m == n for i, (m, n) in enumerate(zip(x.shape, indices.shape, strict=True)))
    return x if same else x[index]


@handles("GatherND")
def gather_nd(node: OnnxNode, x: Any, indices: Any) -> Any:
    batch = node.get("batch_dims", 0)
    return rlx.gather_nd(x, _counted_tuples(indices, x.shape, batch), batch_dims=batch)


def _counted_tuples(indices: Any, shape: Any, batch: int = 0) -> Any:
    """Index tuples counted from the front."""
    if isinstance(indices, np.ndarray) and (indices.size == 0 or indices.min() >= 0):
        return indices
    width = indices.shape[-1]
    sizes = rlx.stack([rlx.asarray(n, dtype=rlx.i64) for n in shape[batch : batch + width]])
    return rlx.where(indices < 0, rlx.astype(indices, rlx.i64) + sizes, rlx.astype(indices, rlx.i64))


@handles("ScatterElements", "Scatter")
def scatter_elements(node: OnnxNode, x: Any, indices: Any, updates: Any) -> Any:
    """Elements written, added, multiplied or compared in at the places that indices of one axis name."""
    axis = node.axis(node.get("axis", 0), x.ndim)
    position = rlx.astype(counted(indices, x.shape[axis]), rlx.i64)
    places = []
    for i, n in enumerate(indices.shape):
        axis_positions = (
            position if i == axis else rlx.reshape(rlx.arange(n), tuple(n if j == i else 1 for j in range(x.ndim)))
        )
        places.append(rlx.broadcast_to(rlx.astype(axis_positions, rlx.i64), indices.shape))
    return scattered(node, x, rlx.stack(places, axis=-1), updates)


rows({"ScatterND": lambda node, x, indices, updates: scattered(node, x, _counted_tuples(indices, x.shape), updates)})


def scattered(node: OnnxNode, x: Any, tuples: Any, updates: Any) -> Any:
    """`x` with updates at index tuples, by the node's `reduction`."""
    mode = node.choice("reduction", *MODES)
    return rlx.scatter_nd(x, tuples, updates, mode=MODES[mode])  # type: ignore[arg-type]


@handles("OneHot", grows=True)
def one_hot(node: OnnxNode, indices: Any, depth: Any, values: Any) -> Any:
    """The second value at the given positions, the first elsewhere, along a new axis, whose size may be data-dependent."""
    size = node.dim(1, "depth")
    axis = node.get("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    if dtype_of(indices.dtype).is_float:
        indices = rlx.astype(indices, rlx.i64)
    places = rlx.expand_dims(rlx.where(indices < 0, indices + size, indices), axis=axis)
    steps = rlx.reshape(rlx.iota(0, (size,), rlx.i64), (size, *(1,) * (indices.ndim - axis)))
    return rlx.where(places == steps, values[1], values[0])


@handles("TensorScatter")
def tensor_scatter(node: OnnxNode, past: Any, update: Any, starts: Any = None) -> Any:
    """A cache with the update of each sequence written from its own start on, around the end where it is circular."""
    axis = node.axis(node.get("axis", -2), past.ndim)
    mode = node.choice("mode", "linear", "circular")
    batch = past.shape[0]
    first = rlx.zeros((batch,), dtype=rlx.i64) if starts is None else rlx.astype(starts, rlx.i64)
    steps = rlx.expand_dims(first, axis=1) + rlx.expand_dims(rlx.arange(update.shape[axis]), axis=0)
    if mode == "circular":
        steps = rlx.remainder(steps, past.shape[axis])
    data, new = rlx.moveaxis(past, axis, 1), rlx.moveaxis(update, axis, 1)
    rows = rlx.broadcast_to(rlx.expand_dims(rlx.arange(batch), axis=1), steps.shape)
    result = rlx.scatter_nd(data, rlx.stack([rows, steps], axis=-1), new)
    return rlx.moveaxis(result, 1, axis)


@handles("Compress", finds_sizes=True)
def compress(node: OnnxNode, x: Any, condition: Any) -> Any:
    """The elements of an axis where a condition is true; the positions are determined on the host unless it is known."""
    axis = node.axis(node.get("axis"), x.ndim) if "axis" in node else None
    data = rlx.reshape(x, (-1,)) if axis is None else x
    size, maximum = condition.size, data.shape[axis or 0]
    if isinstance(size, int) and isinstance(maximum, int) and size > maximum:
        raise FormatError(f"{node}: a condition of {size} elements for {maximum}")
    (where,) = node.on_host(lambda stored: np.nonzero(stored.ravel()), lambda n: [rlx.TensorType(rlx.i64, (n,))], 1)
    return rlx.take(data, where, axis=axis or 0)


@handles("NonZero", finds_sizes=True)
def nonzero(node: OnnxNode, x: Any) -> Any:
    """The positions of elements that are not 0, as index tuples in columns."""

    def places(data: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.array(np.nonzero(np.atleast_1d(data)), np.int64),)

    return node.on_host(places, lambda n: [rlx.TensorType(rlx.i64, (max(x.ndim, 1), n))], 0)


# ----------------------------------------------------------------------------------- order of elements


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

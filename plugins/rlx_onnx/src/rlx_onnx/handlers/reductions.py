"""Operations that make one element of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import dims_array, is_sizes, settled, traced

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, **at: rlx.sum(rlx.abs(x), **at),
    "ReduceL2": lambda x, **at: rlx.sqrt(rlx.sum(x * x, **at)),
    "ReduceLogSum": lambda x, **at: rlx.log(rlx.sum(x, **at)),
    "ReduceLogSumExp": rlx.logsumexp,
    "ReduceMean": rlx.mean,
    "ReduceProd": rlx.prod,
    "ReduceSum": rlx.sum,
    "ReduceSumSquare": lambda x, **at: rlx.sum(x * x, **at),
    "ReduceMax": lambda x, **at: _extreme(x, rlx.max, **at),
    "ReduceMin": lambda x, **at: _extreme(x, rlx.min, **at),
}


@handles(*REDUCTIONS, takes_sizes=True)
def reduced(node: OnnxNode, x: Any, axes: Any = None) -> Any:
    if is_sizes(x) and node.op == "ReduceProd":
        return settled(dims_array(product(tuple(x))).reshape((1,) if node.get("keepdims", 1) else ()))
    return _reduced(node, REDUCTIONS[node.op], traced(x))


def _reduced(node: OnnxNode, function: Callable[..., Any], x: Any) -> Any:
    dtype = dtype_of(x.dtype)
    axes = node.ints(1, "axes")
    if axes is None:
        axes = node.get("axes")
    if not axes:
        if node.get("noop_with_empty_axes", 0):
            return _of_one(node.op, x)
        axes = list(range(x.ndim))
    keep = bool(node.get("keepdims", 1))
    values = rlx.astype(x, rlx.f64) if dtype.is_integer and node.op in IN_FLOATS else x
    result = function(values, axis=tuple(axes), keepdims=keep)
    if dtype.is_integer and node.op in IN_FLOATS:
        result = rlx.trunc(result)
    return rlx.astype(result, dtype)


IN_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean")


def _of_one(op: str, x: Any) -> Any:
    """Return the reduction of a single element."""
    if op in ("ReduceL1", "ReduceL2"):
        return rlx.abs(x)
    if op == "ReduceSumSquare":
        return x * x
    return rlx.log(x) if op == "ReduceLogSum" else x


def _extreme(x: Any, function: Callable[..., Any], **options: Any) -> Any:
    """The largest or smallest; of no element, the extreme of the dtype."""
    dtype = dtype_of(x.dtype)
    if not any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in options["axis"]):
        if dtype.kind == "bool":
            return rlx.astype(function(rlx.astype(x, rlx.u8), **options), dtype)
        return function(x, **options)
    extreme = extremes(dtype.numpy)[0 if function is rlx.max else 1]
    axes = {a % x.ndim for a in options["axis"]}
    dims = [1 if i in axes else n for i, n in enumerate(x.shape) if options["keepdims"] or i not in axes]
    return rlx.full(tuple(dims), extreme, dtype=dtype)


def extremes(dtype: np.dtype) -> tuple[Any, Any]:
    """The smallest and the largest number of a dtype; of floats, the infinite ones."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -np.inf, np.inf


@handles("ArgMax", "ArgMin")
def arg_extreme(node: OnnxNode, x: Any) -> Any:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    function = rlx.argmax if node.op == "ArgMax" else rlx.argmin
    if not node.get("select_last_index", 0):
        return rlx.astype(function(x, axis=axis, keepdims=keep), rlx.i64)
    return rlx.astype(x.shape[axis] - 1 - function(rlx.flip(x, axis=axis), axis=axis, keepdims=keep), rlx.i64)


@handles("CumSum", "CumProd")
def cumulative(node: OnnxNode, x: Any, axis: Any) -> Any:
    """Running sums or products; `exclusive` leaves each element itself out."""
    position = int(node.scalar(1, "axis")) % x.ndim
    data = rlx.flip(x, axis=position) if node.get("reverse", 0) else x
    neutral = 0 if node.op == "CumSum" else 1
    if node.get("exclusive", 0):
        first = rlx.full((*x.shape[:position], 1, *x.shape[position + 1 :]), neutral, dtype=dtype_of(x.dtype))
        shifted = data[(slice(None),) * position + (slice(0, x.shape[position] - 1),)]
        data = rlx.concat([first, shifted], axis=position)
    function = rlx.cumulative_sum if node.op == "CumSum" else rlx.cumulative_prod
    result = rlx.astype(function(data, axis=position), dtype_of(x.dtype))
    return rlx.flip(result, axis=position) if node.get("reverse", 0) else result


@handles("Hardmax")
def hardmax(node: OnnxNode, x: Any) -> Any:
    """1 at the first largest element of an axis, 0 elsewhere."""
    axis = node.get("axis", -1) % x.ndim
    places = rlx.expand_dims(rlx.argmax(x, axis=axis), axis=axis)
    steps = rlx.reshape(rlx.arange(x.shape[axis]), (-1, *(1,) * (x.ndim - axis - 1)))
    return rlx.astype(steps == places, dtype_of(x.dtype))


@handles("Softmax", "LogSoftmax")
def softmax(node: OnnxNode, x: Any) -> Any:
    function = rlx.softmax if node.op == "Softmax" else rlx.log_softmax
    return function(x, axis=node.get("axis", -1))

"""Operations that make tensors of numbers that the model says."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.conversions import element_of
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import Node
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import is_sizes
from rlx_onnx.walking.walk import entered


@handles("Constant")
def constant(node: Node) -> Any:
    for name in ("value_int", "value_ints"):
        if name in node:
            return np.array(node.get(name), np.int64)
    for name in ("value_float", "value_floats"):
        if name in node:
            return np.array(node.get(name), np.float32)
    if "value" in node:
        return entered(node.get("value"), node.tensor("value").data_type)
    return node.refuse("a constant of texts or a sparse one", "a dense tensor of numbers")


@handles("ConstantOfShape", takes_sizes=True, grows=True)
def constant_of_shape(node: Node, dims: Any) -> Any:
    value = node.get("value")
    value = np.zeros((1,), np.float32) if value is None else value
    if value.size != 1:
        raise FormatError(f"{node}: its value is one number, not {list(value.shape)}")
    sizes = tuple(node.dims(0, "shape"))
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise FormatError(f"{node}: {list(sizes)} are no sizes")
    return rlx.broadcast_to(value.reshape(()), sizes)


@handles("EyeLike", takes_sizes=True, grows=True)
def eye_like(node: Node, x: Any) -> Any:
    to = dtype_of(DTYPES[node.element("dtype", element_of(x))])
    rows, columns = x.shape
    offset = rlx.expand_dims(rlx.arange(columns), axis=0) - rlx.expand_dims(rlx.arange(rows), axis=1)
    return rlx.astype(offset == node.get("k", 0), to)


@handles("Range", takes_sizes=True, grows=True)
def steps(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """`start`, `start + delta`, … up to but without `limit`; how many those are must be known."""
    first, last, by = (node.scalar(i, what) for i, what in enumerate(("start", "limit", "delta")))
    own = np.dtype(np.int64) if any(map(is_sizes, (start, limit, delta))) else dtype_of(start.dtype).numpy
    if any(isinstance(each, Expr) for each in (first, last, by)):
        if by != 1:
            node.refuse(f"steps of {by} up to a size", "steps of 1")
        return rlx.astype(rlx.arange(last - first) + first, dtype_of(own))
    if by == 0:
        raise FormatError(f"{node}: steps of 0 do not end")
    count = max(int(np.ceil((last - first) / by)), 0)
    return rlx.astype(rlx.arange(count), dtype_of(own)) * np.asarray(by, own) + np.asarray(first, own)

"""Operations that create tensors from attributes or sizes, and random numbers: only with a seed, because they would not be a
function without one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.conversions import element_of
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import is_sizes, traced
from rlx_onnx.walking.walk import entered


@handles("Constant")
def constant(node: OnnxNode) -> Any:
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
def constant_of_shape(node: OnnxNode, dims: Any) -> Any:
    value = node.get("value")
    value = np.zeros((1,), np.float32) if value is None else value
    if value.size != 1:
        raise FormatError(f"{node}: its value is one number, not {list(value.shape)}")
    sizes = tuple(node.dims(0, "shape"))
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise FormatError(f"{node}: {list(sizes)} are no sizes")
    return rlx.broadcast_to(value.reshape(()), sizes)


@handles("EyeLike", takes_sizes=True, grows=True)
def eye_like(node: OnnxNode, x: Any) -> Any:
    to = DTYPES[node.element("dtype", element_of(x))]
    rows, columns = x.shape
    offset = rlx.expand_dims(rlx.arange(columns), axis=0) - rlx.expand_dims(rlx.arange(rows), axis=1)
    return rlx.astype(offset == node.get("k", 0), to)


@handles("Range", takes_sizes=True, grows=True)
def steps(node: OnnxNode, start: Any, limit: Any, delta: Any) -> Any:
    """`start`, `start + delta`, … up to but without `limit`; with computed operands the size is determined on the host."""
    sizes = any(map(is_sizes, (start, limit, delta)))
    dtype = rlx.i64 if sizes else dtype_of(start.dtype)
    if node.is_computed(0, 1, 2):
        (places,) = node.on_host(_places, lambda n: [rlx.TensorType(rlx.i64, (n,))], 0, 1, 2)
        return rlx.astype(places, dtype) * rlx.reshape(traced(delta), ()) + rlx.reshape(traced(start), ())
    first, last, by = (node.scalar(i, what) for i, what in enumerate(("start", "limit", "delta")))
    if any(isinstance(each, Expr) for each in (first, last, by)):
        if isinstance(by, Expr) or by <= 0:
            node.refuse(f"steps of {by} up to a size", "steps of a positive number")
        return rlx.astype(rlx.arange((last - first + by - 1) // by) * by + first, dtype)
    places = rlx.arange(_count(first, last, by))
    return rlx.astype(places, dtype) * np.asarray(by, dtype.numpy) + np.asarray(first, dtype.numpy)


def _places(*limits: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.arange(_count(*(each.item() for each in limits))),)


def _count(first: float, last: float, by: float) -> int:
    """Return how many steps there are.

    Raises:
        ValueError: They do not end.
    """
    if by == 0:
        raise ValueError("steps of 0 do not end")
    return max(math.ceil((last - first) / by), 0)


# -------------------------------------------------------------------------------------- random numbers


def _key(node: OnnxNode) -> Any:
    if "seed" not in node:
        node.refuse("random numbers without a seed", "a seed, or the numbers as an input")
    return rlx.random.key(int(np.float32(node.get("seed")).view(np.uint32)))


def _drawn(node: OnnxNode, shape: Any, element: int) -> Any:
    to = DTYPES[element]
    if node.op.startswith("RandomNormal"):
        result = rlx.random.normal(_key(node), shape) * node.get("scale", 1.0) + node.get("mean", 0.0)
    else:
        low, high = node.get("low", 0.0), node.get("high", 1.0)
        result = rlx.random.uniform(_key(node), shape) * (high - low) + low
    return rlx.astype(result, to)


rows(
    {
        "RandomNormal RandomUniform": lambda node: _drawn(node, tuple(node.get("shape", [])), node.element("dtype", 1)),
        "RandomNormalLike RandomUniformLike": lambda node, x: _drawn(
            node, tuple(x.shape), node.element("dtype", element_of(x))
        ),
        "Bernoulli": lambda node, p: rlx.astype(
            rlx.random.uniform(_key(node), p.shape) < p, DTYPES[node.element("dtype", element_of(p))]
        ),
    },
    is_pure=False,
)

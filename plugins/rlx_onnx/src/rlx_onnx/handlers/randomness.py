"""Random numbers: with a seed they are the same in every run, without one they would not be a function."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_onnx.handlers.conversions import element_of
from rlx_onnx.reading.tensors import DTYPES
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import rows


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

"""Activations with parameters, and those without an rlx function."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows

rows(
    {
        "Celu": lambda node, x: rlx.celu(x, node.get("alpha", 1.0)),
        "Elu": lambda node, x: rlx.elu(x, node.get("alpha", 1.0)),
        "LeakyRelu": lambda node, x: rlx.leaky_relu(x, node.get("alpha", 0.01)),
        "PRelu": lambda node, x, slope: rlx.where(x < 0, x * slope, x),
        "ThresholdedRelu": lambda node, x: rlx.where(x > node.get("alpha", 1.0), x, rlx.zeros_like(x)),
        "HardSigmoid": lambda node, x: rlx.clip(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1),
        "Softsign": lambda node, x: x / (1 + rlx.abs(x)),
        "Gelu": lambda node, x: (
            rlx.gelu_approx(x) if node.choice("approximate", "none", "tanh") == "tanh" else rlx.gelu(x)
        ),
        "Swish": lambda node, x: (
            rlx.silu(x) if node.get("alpha", 1.0) == 1.0 else x * rlx.sigmoid(node.get("alpha", 1.0) * x)
        ),
    }
)


@handles("Selu")
def selu(node: OnnxNode, x: Any) -> Any:
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * rlx.where(x > 0, x, alpha * rlx.expm1(rlx.minimum(x, 0)))


@handles("Shrink")
def shrink(node: OnnxNode, x: Any) -> Any:
    """x moved toward zero by `bias` beyond ±`lambd`, and 0 between."""
    edge, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    number = np.asarray(bias, x.dtype if dtype_of(x.dtype).is_integer else np.float32)
    return rlx.astype(rlx.where(x < -edge, x + number, rlx.where(x > edge, x - number, rlx.zeros_like(x))), x.dtype)

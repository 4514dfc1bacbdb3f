"""Activations with parameters, and those without an rlx function."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles


@handles("Celu")
def celu(node: OnnxNode, x: Any) -> Any:
    return rlx.celu(x, node.get("alpha", 1.0))


@handles("Elu")
def elu(node: OnnxNode, x: Any) -> Any:
    return rlx.elu(x, node.get("alpha", 1.0))


@handles("Selu")
def selu(node: OnnxNode, x: Any) -> Any:
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * rlx.where(x > 0, x, alpha * rlx.expm1(rlx.minimum(x, 0)))


@handles("LeakyRelu")
def leaky_relu(node: OnnxNode, x: Any) -> Any:
    return rlx.leaky_relu(x, node.get("alpha", 0.01))


@handles("PRelu")
def parametric_relu(node: OnnxNode, x: Any, slope: Any) -> Any:
    return rlx.where(x < 0, x * slope, x)


@handles("ThresholdedRelu")
def thresholded_relu(node: OnnxNode, x: Any) -> Any:
    return rlx.where(x > node.get("alpha", 1.0), x, rlx.zeros_like(x))


@handles("HardSigmoid")
def hard_sigmoid(node: OnnxNode, x: Any) -> Any:
    return rlx.clip(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@handles("Softsign")
def softsign(node: OnnxNode, x: Any) -> Any:
    return x / (1 + rlx.abs(x))


@handles("Gelu")
def gelu(node: OnnxNode, x: Any) -> Any:
    return rlx.gelu_approx(x) if node.choice("approximate", "none", "tanh") == "tanh" else rlx.gelu(x)


@handles("Swish")
def swish(node: OnnxNode, x: Any) -> Any:
    return rlx.silu(x) if node.get("alpha", 1.0) == 1.0 else x * rlx.sigmoid(node.get("alpha", 1.0) * x)


@handles("Shrink")
def shrink(node: OnnxNode, x: Any) -> Any:
    """x moved toward zero by `bias` beyond ±`lambd`, and 0 between."""
    edge, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    number = np.asarray(bias, x.dtype if dtype_of(x.dtype).is_integer else np.float32)
    return rlx.astype(rlx.where(x < -edge, x + number, rlx.where(x > edge, x - number, rlx.zeros_like(x))), x.dtype)

"""Losses of classes, and steps of optimisers: updated tensors first, then their states."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows

TRAINING = "ai.onnx.preview.training"


def _groups(node: OnnxNode, tensors: tuple[Any, ...], kinds: int) -> list[tuple[Any, ...]]:
    """Operands by tensor: its value, its gradient, its states."""
    count = len(tensors) // kinds
    return list(zip(*(tensors[k * count : (k + 1) * count] for k in range(kinds)), strict=True))


def _results(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(each for column in zip(*rows, strict=True) for each in column)


@handles("Adagrad", domain=TRAINING)
def adagrad(node: OnnxNode, rate: Any, step: Any, *tensors: Any) -> Any:
    eps, decay, norm = node.get("epsilon", 1e-6), node.get("decay_factor", 0.0), node.get("norm_coefficient", 0.0)
    r = rate / (1 + rlx.astype(step, rlx.f32) * np.float32(decay))
    rows = []
    for x, g, h in _groups(node, tensors, 3):
        g = norm * x + g
        h = h + g * g
        rows.append((x - r * g / (rlx.sqrt(h) + eps), h))
    return _results(rows)


@handles("Adam", domain=TRAINING)
def adam(node: OnnxNode, rate: Any, step: Any, *tensors: Any) -> Any:
    alpha, beta, eps = node.get("alpha", 0.9), node.get("beta", 0.999), node.get("epsilon", 1e-6)
    before, after = node.get("norm_coefficient", 0.0), node.get("norm_coefficient_post", 0.0)
    count = rlx.astype(step, rlx.f32)
    corrected = rate * rlx.sqrt(1 - rlx.pow(np.float32(beta), count)) / (1 - rlx.pow(np.float32(alpha), count))
    r = rlx.where(step > 0, corrected, rate)
    rows = []
    for x, g, v, h in _groups(node, tensors, 4):
        g = before * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        moved = x - r * v / (rlx.sqrt(h) + eps)
        rows.append(((1 - after) * moved, v, h))
    return _results(rows)


@handles("Momentum", domain=TRAINING)
def momentum(node: OnnxNode, rate: Any, step: Any, *tensors: Any) -> Any:
    alpha, beta, norm = node.get("alpha"), node.get("beta"), node.get("norm_coefficient", 0.0)
    nesterov = node.choice("mode", "standard", "nesterov") == "nesterov"
    share = rlx.where(step > 0, np.float32(beta), np.float32(1.0))
    rows = []
    for x, g, v in _groups(node, tensors, 3):
        g = norm * x + g
        v = alpha * v + share * g
        rows.append((x - rate * (g + alpha * v if nesterov else v), v))
    return _results(rows)


# ---------------------------------------------------------------------------------------------- losses


def _loss(node: OnnxNode, log_p: Any, labels: Any, weight: Any) -> Any:
    """-weight · log p of each label, added up, averaged by the weights, or as it is."""
    ignored = node.get("ignore_index")
    is_counted = None if ignored is None else labels != ignored
    safe = labels if is_counted is None else rlx.where(is_counted, labels, rlx.zeros_like(labels))
    dtype = dtype_of(log_p.dtype)
    chosen = -rlx.squeeze(rlx.take_along_axis(log_p, rlx.expand_dims(safe, axis=1), axis=1), axis=1)
    scale = rlx.ones(labels.shape, dtype=dtype) if weight is None else rlx.take(weight, safe, axis=0)
    if is_counted is not None:
        scale = rlx.where(is_counted, scale, rlx.zeros_like(scale))
    loss = chosen * scale
    how = node.choice("reduction", "mean", "sum", "none")
    if how == "none":
        return loss
    return rlx.sum(loss) if how == "sum" else rlx.sum(loss) / rlx.sum(scale)


rows({"NegativeLogLikelihoodLoss": lambda node, log_p, labels, weight=None: _loss(node, log_p, labels, weight)})


@handles("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node: OnnxNode, scores: Any, labels: Any, weight: Any = None) -> Any:
    log_p = rlx.log_softmax(scores, axis=1)
    loss = _loss(node, log_p, labels, weight)
    return (loss, log_p) if node.count > 1 else loss

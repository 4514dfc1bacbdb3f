"""Losses of classes."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows


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

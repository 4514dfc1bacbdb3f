"""Ways to write softmax cross-entropy of rows of logits, and programs that look like it and are something else."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ir.dtypes import f32
from rlx_core.ops.activation import exp, log
from rlx_core.ops.along_axis import TakeAlongAxis
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import OneHot
from rlx_core.ops.indexing import Gather, gather
from rlx_core.ops.reduction import max_axes
from rlx_core.ops.selection import stop_gradient, where
from rlx_core.ops.softmax import log_softmax, softmax
from rlx_core.ops.structural import expand, reshape, sum_axes
from rlx_core.passes.fuse.softmax_cross_entropy import FuseSoftmaxCrossEntropy

from .programs import Row

CROSS, X, ROWS, LOSS = FuseSoftmaxCrossEntropy(), "f32[3, 4]", {"x": "f32[3, 4]"}, {"x": "f32[3, 4]", "y": "bool[3]"}
FUSED = "softmax_cross_entropy_with_logits"
GIVEN = ("cast", "cast", "add")
INSIDE = ("ge", "lt", "where", "where")
"""What makes labels, and what finds those outside of the classes."""


def labels(y: Any) -> Any:
    return cast(y, to=f32).astype("i64") + 1


def chosen(y: Any) -> Any:
    return reshape(labels(y), (3, 1))


def read(rows: Any, y: Any) -> Any:
    return gather(rows, labels(y), axis=1, batch_dims=1)


def by_sum(rows: Any, mask: Any) -> Any:
    return sum_axes(rows * (mask.astype("f32") if mask.dtype.name == "bool" else mask), axes=(1,))


def kept(x: Any, op: Any, axis: int = 1) -> Any:
    return op(x, axes=(axis,), keep_dim=True)


def log_sum(x: Any) -> Any:
    return log(kept(exp(x), sum_axes)[:, 0])


READINGS = [
    Row("cross-entropy by gather", CROSS, lambda x, y: -read(log_softmax(x), y), LOSS, (*GIVEN, FUSED, "neg", "neg")),
    Row("cross-entropy by take", CROSS, lambda x, y: TakeAlongAxis(1)(log_softmax(x), chosen(y)), LOSS,
        (*GIVEN, "reshape", "reshape", FUSED, "neg", "reshape")),
    Row("cross-entropy in a batch", CROSS, lambda x, y: gather(log_softmax(x), y.astype("i64"), axis=2, batch_dims=2),
        {"x": "f32[2, 3, 4]", "y": "bool[2, 3]"}, ("cast", "reshape", "reshape", FUSED, "neg", "reshape")),
    Row("cross-entropy of one row", CROSS, lambda x, y: gather(log_softmax(x), y.astype("i64")), {"x": "f32[4]", "y": "bool[]"},
        ("cast", "reshape", "reshape", FUSED, "neg", "reshape")),
    Row("cross-entropy by log of softmax", CROSS, lambda x, y: read(log(softmax(x)), y), LOSS, (*GIVEN, FUSED, "neg")),
    Row("cross-entropy by log of a probability", CROSS, lambda x, y: -log(TakeAlongAxis(1)(softmax(x), chosen(y))[:, 0]), LOSS,
        (*GIVEN, "reshape", "reshape", FUSED, "neg", "neg")),
    Row("cross-entropy by one-hot rows", CROSS, lambda x, y: by_sum(-log_softmax(x), OneHot(4)(labels(y))), LOSS,
        (*GIVEN, *INSIDE, FUSED)),
    Row("cross-entropy by an identity", CROSS,
        lambda x, y: by_sum(log_softmax(x), gather(np.eye(4, dtype=np.float32), labels(y))), LOSS, (*GIVEN, FUSED, "neg")),
    Row("cross-entropy by comparison", CROSS, lambda x, y: -by_sum(log_softmax(x) * 0.5, np.arange(4) == chosen(y)), LOSS,
        (*GIVEN, "reshape", "reshape", *INSIDE, FUSED, "mul", "neg")),
    Row("cross-entropy by selection", CROSS,
        lambda x, y: sum_axes(where(chosen(y) == np.arange(4), -log_softmax(x), 0.0), axes=(1,)), LOSS,
        (*GIVEN, "reshape", "reshape", *INSIDE, FUSED)),
    Row("cross-entropy of all rows", CROSS, lambda x, y: sum_axes(log_softmax(x) * OneHot(4)(labels(y)), axes=(0, 1)), LOSS,
        (*GIVEN, *INSIDE, FUSED, "neg", "sum")),
    Row("cross-entropy by normaliser", CROSS, lambda x, y: log_sum(x) - read(x, y), LOSS, (*GIVEN, FUSED)),
    Row("cross-entropy by shifted normaliser", CROSS,
        lambda x, y: (lambda m: read(x, y) - (log_sum(x - m) + m[:, 0]))(stop_gradient(kept(x, max_axes))), LOSS,
        (*GIVEN, FUSED, "neg")),
    Row("cross-entropy of shifted logits", CROSS,
        lambda x, y: (lambda s: log_sum(s) - read(s, y))(x - stop_gradient(kept(x, max_axes))), LOSS, (*GIVEN, FUSED)),
    Row("log-softmax", CROSS, lambda x: (lambda m: m - log(kept(exp(m), sum_axes)))(x - kept(x, max_axes)), ROWS,
        ("log_softmax",)),
]  # fmt: skip

NO_READINGS = [
    Row("log-softmax, columns as rows", CROSS, lambda x: x - expand(reshape(log(kept(exp(x), sum_axes, 0)), (4, 1)), (4, 4)),
        {"x": "f32[4, 4]"}),
    Row("classes that are not the last axis", CROSS, lambda x, y: gather(log_softmax(x, axis=0), labels(y), axis=1, batch_dims=1),
        LOSS, kind="AxisNotLast"),
    Row("one class of all rows", CROSS, lambda x, y: gather(log_softmax(x), labels(y), axis=1), LOSS, kind="NotFused"),
    Row("labels that are clipped", CROSS, lambda x, y: Gather(1, 1, oob="clip")(log_softmax(x), labels(y)), LOSS,
        kind="NotFused"),
    Row("a softmax that is zero where all is hidden", CROSS,
        lambda x, y: log(read(softmax(x, empty_row="zero"), y)), LOSS),
    Row("a normaliser of other rows", CROSS, lambda x, y, z: log_sum(z) - read(x, y),
        LOSS | {"z": "f32[3, 4]"}),
    Row("places that are no classes", CROSS, lambda x, y: by_sum(log_softmax(x), chosen(y) == np.array([0, 1, 3, 2])), LOSS),
    Row("a mask that is no class", CROSS, lambda x, y: by_sum(log_softmax(x), chosen(y) >= np.arange(4)), LOSS),
    Row("weights that are no class", CROSS, lambda x, w: sum_axes(log_softmax(x) * w, axes=(1,)), {"x": X, "w": X}),
    Row("a sum over rows alone", CROSS, lambda x, y: sum_axes(where(chosen(y) == np.arange(4), log_softmax(x), 0.0), axes=(0,)),
        LOSS),
    Row("something else where the label is not", CROSS,
        lambda x, y: sum_axes(where(chosen(y) == np.arange(4), log_softmax(x), 1.0), axes=(1,)), LOSS),
    Row("a wide identity", CROSS, lambda x, y: by_sum(log_softmax(x), gather(np.eye(5, 4, dtype=np.float32), labels(y))), LOSS),
    Row("a row that counts although its label is outside", CROSS, lambda x, y: log_sum(x) - by_sum(x, chosen(y) == np.arange(4)),
        LOSS),
]  # fmt: skip

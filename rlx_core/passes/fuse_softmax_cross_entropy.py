"""Softmax cross-entropy as people write it: the logarithm of a softmax, read at the labels.

Reading a log-softmax at one class of each row is the negated loss of that row, whatever sign and mean come after it. So the
reading alone is replaced, and the negation that people write cancels.
"""

from __future__ import annotations

from collections.abc import Iterator

import rlx_core.ops.operators  # noqa: F401  gives pattern variables their operators
from rlx_core.ir.graph import Value
from rlx_core.ops.activation import exp, log
from rlx_core.ops.along_axis import TakeAlongAxis
from rlx_core.ops.arithmetic import negative, subtract
from rlx_core.ops.indexing import Gather
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.loss import SoftmaxCrossEntropyWithLogits, softmax_cross_entropy_with_logits
from rlx_core.ops.reduction import max_axes
from rlx_core.ops.softmax import LogSoftmax, log_softmax
from rlx_core.ops.structural import sum_axes
from rlx_core.passes.fusion import declined_if_kept, fusion_of
from rlx_core.passes.recognise_softmax import operand_of, shifted_rows
from rlx_core.passes.rules import Declined, Match, Rule, rewrite, ruleset

__all__ = ["FuseSoftmaxCrossEntropy", "fuse_softmax_cross_entropy"]


@ruleset("fuse-softmax-cross-entropy")
def fuse_softmax_cross_entropy() -> Iterator[Rule]:
    """Fuse the log-softmax of rows of logits with the reading at their labels; and recognise the log-softmax itself."""
    shifted = rewrite("log-softmax", subtract.op).to(as_log_softmax).giving_up("the last bit")
    yield shifted.sampled(x="f32[3, 4]", make=written_out)
    types = {"x": "f32[3, 4]", "labels": "i64[3]"}
    gathered = rewrite("gathered", Gather).to(read_at_labels)
    yield gathered.sampled(**types, make=lambda x, labels: Gather(1, 1)(log_softmax(x), zero_of(labels)))
    taken = rewrite("taken", TakeAlongAxis).to(read_at_labels)
    yield taken.sampled(**types, make=lambda x, labels: TakeAlongAxis(1)(log_softmax(x), column(zero_of(labels))))


def zero_of(labels: Value) -> Value:
    return labels * 0


def column(labels: Value) -> Value:
    return reshaped(labels, (*labels.shape, 1))


def written_out(x: Value) -> Value:
    moved = x - max_axes(x, axes=(1,), keep_dim=True)
    return moved - log(sum_axes(exp(moved), axes=(1,), keep_dim=True))


def as_log_softmax(match: Match) -> Value | Declined | None:
    """`m - log Σ exp(m)` with `m = x - max x`, along one axis."""
    moved, normalizer = match.root.operands
    total = None if normalizer is None else operand_of(normalizer, log.op)
    if moved is None or normalizer is None or total is None:
        return None
    for row in shifted_rows(moved, total, match.root.type):
        if row.is_by_maximum and operand_of(row.summed, exp.op) is moved:
            inner = [*row.nodes, row.summed.node, normalizer.node]
            kept = declined_if_kept(match.graph, inner, [*inner, match.root])
            return kept or log_softmax(match.new(row.x), axis=row.axis)
    return None


def read_at_labels(match: Match) -> Value | Declined | None:
    rows, labels = match.root.operands
    if rows is None or labels is None or not isinstance(rows.node.op, LogSoftmax):
        return None
    op, logits = match.root.op.attributes(), rows.node.operands[0]
    assert logits is not None, "log-softmax has an operand"
    is_taken = isinstance(match.root.op, TakeAlongAxis)
    wanted = (logits.shape[0], 1) if is_taken else logits.shape[:1]
    if logits.ndim != 2 or labels.shape != wanted or not labels.dtype.is_integer:
        return Declined(f"logits {logits.type} and labels {labels.type} are not rows and their classes", "NotFused")
    if {op["axis"] % 2, rows.node.op.axis % 2} != {1}:
        return Declined("the classes are not on the last axis", "AxisNotLast")
    if op["oob"] != "error" or (not is_taken and op["batch_dims"] != 1):
        return None
    kept = declined_if_kept(match.graph, [rows.node], [match.root])
    if kept is not None:
        return kept
    loss = softmax_cross_entropy_with_logits(match.new(logits), reshaped(match.new(labels), logits.shape[:1]))
    return reshaped(negative(loss), match.root.type.shape)


FuseSoftmaxCrossEntropy = fusion_of(fuse_softmax_cross_entropy, (SoftmaxCrossEntropyWithLogits,))

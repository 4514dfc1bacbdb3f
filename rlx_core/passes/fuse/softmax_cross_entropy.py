"""Softmax cross-entropy in traced code: the logarithm of a softmax, read at the labels.

Reading a log-softmax at one class of each row is the negated loss of that row, independent of a sign and a mean after it. So the
reading alone is replaced, and the negation that people write cancels. The loss is differentiated as one op, `softmax - onehot`.

An index outside of the classes is an error, and stays one. A one-hot row of such a label is all zeros: its row counts for
nothing in the sum, and is ignored by the loss. (`log Σ exp(x) - Σ onehot·x` stays as it is: there the row would count.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import i64
from rlx_core.ir.graph import Node, Value
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.activation import exp, log
from rlx_core.ops.along_axis import TakeAlongAxis
from rlx_core.ops.arithmetic import negative, subtract
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.creation import iota
from rlx_core.ops.indexing import Gather
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.loss import SoftmaxCrossEntropyWithLogits, softmax_cross_entropy_with_logits
from rlx_core.ops.reduction import LogSumExp, max_axes
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import LogSoftmax, Softmax, log_softmax, softmax
from rlx_core.ops.structural import Sum, sum_axes
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.recognise.chains import lies_along
from rlx_core.passes.recognise.label_reading import LabelReading, indexed, reading_of, summed, summed_axes
from rlx_core.passes.recognise.row_normalizers import normalizer_of, unshifted

OUTSIDE = -1
"""A label that no class has."""

OTHER_AXIS = Declined("the classes are not on the last axis", "AxisNotLast")


@ruleset("fuse-softmax-cross-entropy")
def fuse_softmax_cross_entropy() -> Iterator[RewriteRule]:
    """Fuse the log-softmax of rows of logits with the reading at their labels; and recognise the log-softmax itself."""
    x, rows = {"x": "f32[3, 4]"}, {"x": "f32[3, 4]", "labels": "i64[3]"}
    shifted = rewrite("log-softmax", subtract.op).to(as_log_softmax).giving_up("the last bits, overflow")
    yield shifted.sampled(**x, make=written_out).sampled(**x, make=lambda x: x - LogSumExp((1,), keep_dim=True)(x))
    direct = rewrite("log-of-softmax", log.op).to(as_log_of_softmax).giving_up("the last bits, underflow")
    yield direct.sampled(**x, make=lambda x: log(softmax(x)))
    gathered = rewrite("gathered", Gather).to(read_at_labels)
    yield gathered.sampled(**rows, make=lambda x, labels: Gather(1, 1)(log_softmax(x), zero_of(labels)))
    taken = rewrite("taken", TakeAlongAxis).to(read_at_labels)
    yield taken.sampled(**rows, make=lambda x, labels: TakeAlongAxis(1)(log_softmax(x), column(zero_of(labels))))
    masked = rewrite("masked-sum", Sum).to(read_by_sum).giving_up("the last bits, nan of 0·inf")
    yield masked.sampled(**rows, make=lambda x, labels: sum_axes(-one_hot_of(labels, x) * log_softmax(x), axes=(1,)))
    normalised = rewrite("normalised", subtract.op).to(normalised_at_labels).giving_up("the last bits, overflow")
    yield normalised.sampled(**rows, make=lambda x, labels: LogSumExp((1,))(x) - Gather(1, 1)(x, zero_of(labels)))
    logarithm = rewrite("log-of-reading", log.op).to(log_of_reading).giving_up("the last bits, underflow")
    yield logarithm.sampled(**rows, make=lambda x, labels: log(Gather(1, 1)(softmax(x), zero_of(labels))))


def zero_of(labels: Value) -> Value:
    return labels * 0


def column(labels: Value) -> Value:
    return reshaped(labels, (*labels.shape, 1))


def one_hot_of(labels: Value, x: Value) -> Value:
    return as_dtype(equal(column(labels), iota(axis=0, shape=x.shape[1:])), x.dtype)


def written_out(x: Value) -> Value:
    moved = x - max_axes(x, axes=(1,), keep_dim=True)
    return moved - log(sum_axes(exp(moved), axes=(1,), keep_dim=True))


# ------------------------------------------------------------------------------------------- log-softmax


def as_log_softmax(match: Match) -> Value | Declined | None:
    """`x - log Σ exp(x)`, along one axis; x may be shifted by its maximum."""
    x, total = match.root.operands
    normalizer = None if total is None else normalizer_of(total)
    if x is None or total is None or normalizer is None or normalizer.x is not x or x.type != match.root.type:
        return None
    if not lies_along(total, x.shape, (normalizer.axis,)):
        return None
    logits = unshifted_logits(match, x, normalizer.axis, normalizer.nodes)
    return logits if isinstance(logits, Declined) else log_softmax(match.new(logits), axis=normalizer.axis)


def as_log_of_softmax(match: Match) -> Value | Declined | None:
    """`log(softmax(x))`, which is -inf where a probability underflows and need not be."""
    (p,) = match.root.present()
    if not isinstance(p.node.op, Softmax) or p.node.op.empty_row != "nan":
        return None
    (x,) = p.node.present()
    return declined_if_kept(match.graph, [p.node], [match.root]) or log_softmax(match.new(x), axis=p.node.op.axis)


def unshifted_logits(match: Match, x: Value, axis: int, inner: Collection[Node]) -> Value | Declined:
    """Return the logits that the pattern of `inner` normalises: `x`, or its unshifted source if no other node needs the shift."""
    declined = declined_if_kept(match.graph, inner, {*inner, match.root})
    shifted = unshifted(x, axis)
    if declined is not None or shifted is None:
        return declined or x
    wider = {*inner, *shifted[1]}
    return x if declined_if_kept(match.graph, wider, {*wider, match.root}) else shifted[0]


# ---------------------------------------------------------------------------------------------- the loss


def read_at_labels(match: Match) -> Value | Declined | None:
    """A log-softmax at one class of each row: the negated losses."""
    rows, labels = match.root.present()
    if not isinstance(rows.node.op, LogSoftmax):
        return None
    reading = indexed(match.root)
    if reading is None:
        return Declined(f"{match.root.op!r} at {labels.type} is not one class of each row of {rows.type}", "NotFused")
    return in_shape_of(match.root, losses_of(match, reading, rows.node.op.axis))


def read_by_sum(match: Match) -> Value | Declined | None:
    """A log-softmax under one-hot rows, added up over the classes and perhaps over rows as well."""
    reading = summed(match.root)
    if reading is None or not isinstance(reading.rows.node.op, LogSoftmax):
        return None
    losses = losses_of(match, reading, reading.rows.node.op.axis)
    if isinstance(losses, Declined):
        return losses
    other_axes = [a for a in summed_axes(match.root) if a != reading.rows.ndim - 1]
    total = reshaped(losses, reading.rows.shape[:-1])
    return in_shape_of(match.root, sum_axes(total, axes=other_axes) if other_axes else total)


def log_of_reading(match: Match) -> Value | Declined | None:
    """`log(softmax(x)[label])`: the negated losses."""
    (p,) = match.root.present()
    reading = reading_of(p)
    if reading is None or not isinstance(reading.rows.node.op, Softmax) or reading.rows.node.op.empty_row != "nan":
        return None
    return in_shape_of(match.root, losses_of(match, reading, reading.rows.node.op.axis))


def normalised_at_labels(match: Match) -> Value | Declined | None:
    """`log Σ exp(x) - x[label]`, or its negative."""
    left, right = match.root.present()
    for total, read, is_loss in ((left, right, True), (right, left, False)):
        reading, normalizer = reading_of(read), normalizer_of(total)
        if reading is None or normalizer is None or normalizer.x is not reading.rows or total.type != read.type:
            continue
        if normalizer.axis != reading.rows.ndim - 1:
            return OTHER_AXIS
        logits = unshifted_logits(match, reading.rows, normalizer.axis, {*normalizer.nodes, *reading.nodes})
        if isinstance(logits, Declined):
            return logits
        losses = cross_entropy(match, logits, reading)
        return in_shape_of(match.root, losses if is_loss else negative(losses))
    return None


def losses_of(match: Match, reading: LabelReading, axis: int) -> Value | Declined:
    """Return the losses, one a row, that a reading of a (log-)softmax along `axis` computes; or the reason for declining."""
    if normalize_axis(axis, reading.rows.ndim) != reading.rows.ndim - 1:
        return OTHER_AXIS
    inner = {reading.rows.node, *reading.nodes} - {match.root}
    declined = declined_if_kept(match.graph, inner, {*inner, match.root})
    if declined is not None:
        return declined
    (logits,) = reading.rows.node.present()
    losses = cross_entropy(match, logits, reading)
    return losses if reading.factor == -1 else negative(losses) if reading.factor == 1 else losses * -reading.factor


def cross_entropy(match: Match, logits: Value, reading: LabelReading) -> Value:
    """Return the losses of all rows, `[rows]`; a label out of range gives 0 where the reading was unchecked."""
    classes, rows = logits.shape[-1], product(logits.shape[:-1])
    flat = reshaped(match.new(logits), (rows, classes))
    labels = reshaped(match.new(reading.labels), (rows,))
    if reading.is_checked:
        return softmax_cross_entropy_with_logits(flat, labels)
    wide = as_dtype(labels, i64)
    inside = where(wide >= 0, where(wide < classes, wide, OUTSIDE), OUTSIDE)
    return softmax_cross_entropy_with_logits(flat, inside, ignore_index=OUTSIDE)


def in_shape_of(root: Node, losses: Value | Declined) -> Value | Declined:
    """Return losses in the dims of the node that they replace."""
    return losses if isinstance(losses, Declined) else reshaped(losses, root.type.shape)


FuseSoftmaxCrossEntropy = fusion_of(fuse_softmax_cross_entropy, (SoftmaxCrossEntropyWithLogits,))

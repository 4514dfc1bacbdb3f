"""Connectionist temporal classification: the loss of a sequence whose labels are not aligned with its steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Value
from rlx_core.nn.floats import floats
from rlx_core.nn.losses.reducing import Reduction, checked, reduced
from rlx_core.ops.arguments import flag, whole
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.linalg import operand

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["ctc_loss"]

NEVER = -1e30
"""The logarithm of an impossible event: far below any other, and finite, so that derivatives are finite."""


@checked_call
def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: Reduction = "mean",
) -> Array:
    """The negative logarithm of the probability of the labels, summed over all their alignments with the steps.

    Each step emits a class or the blank; consecutive repetitions count once, and blanks are dropped.

    Args:
        log_probs: f[n, t, c], normalised over the last axis, as by `log_softmax`. (PyTorch has t first.)
        targets: int[n, l], without blanks; labels beyond a sequence's length are ignored.
        input_lengths: int[n], the number of steps of each sequence, at most t.
        target_lengths: int[n], the number of labels, at most l.
        blank: The class of the blank.
        zero_infinity: Whether the loss of labels without an alignment is 0 instead of infinite; its gradient is 0 in any case.
        reduction: "mean" over sequences of loss / max(number of labels, 1), "sum" of the losses, or "none".

    Raises:
        ConfigError: A known length is too large, the blank is not a class, or the reduction is unknown.
        DtypeError: Labels or lengths are not integers.
        ShapeError: Shapes do not fit.

    Source:
        Graves, Fernández, Gomez, Schmidhuber 2006, "Connectionist temporal classification", ICML, section 4.1.

    >>> import numpy as np
    >>> fair = np.log([[[0.5, 0.5], [0.5, 0.5]]])
    >>> np.exp(-ctc_loss(fair, [[1]], [2], [1])).round(6)  # all but two blanks
    np.float64(0.75)
    """
    mode = checked("ctc_loss", reduction)
    result_dtype, (scores,) = floats("ctc_loss", log_probs=log_probs)
    classes, steps, label_lengths = operand(targets), operand(input_lengths), operand(target_lengths)
    _check(scores, classes, steps, label_lengths)
    c = scores.shape[2]
    if not 0 <= whole("ctc_loss: blank", blank) < (c if isinstance(c, int) else math.inf):
        raise ConfigError(f"ctc_loss: blank must be one of the {c} classes, not {blank}")
    is_zeroed = flag("ctc_loss: zero_infinity", zero_infinity)
    lengths = rlx.astype(label_lengths, rlx.i64)
    losses = _losses(scores, rlx.astype(classes, rlx.i64), rlx.astype(steps, rlx.i64), lengths, int(blank))
    losses = rlx.where(rlx.less(losses, -NEVER / 2), losses, 0.0 if is_zeroed else math.inf)
    if mode == "mean":
        losses = rlx.divide(losses, rlx.astype(rlx.maximum(lengths, 1), dtype_of(losses)))
    return reduced(losses, mode, result_dtype)


def _losses(scores: Any, labels: Any, steps: Any, lengths: Any, blank: int) -> Any:
    """Return -ln p of each sequence, about -NEVER without an alignment; positions are blank, label, blank, .., label, blank."""
    n, t, _ = scores.shape
    count = labels.shape[1]
    is_label = rlx.less(rlx.arange(count), rlx.expand_dims(lengths, 1))
    labels = rlx.where(is_label, labels, blank)
    places = _between(labels, rlx.full((n, count), blank, dtype=rlx.i64), rlx.full((n, 1), blank, dtype=rlx.i64))
    nothing = rlx.full((n, count), False)  # between two different labels the blank may be skipped
    if count > 1:
        others = rlx.not_equal(labels[:, 1:], labels[:, :-1])
        may_skip = rlx.concat([nothing[:, :1], others], axis=1)
    else:
        may_skip = nothing
    skips = _between(may_skip, nothing, rlx.full((n, 1), False))
    label_scores = rlx.maximum(rlx.gather(scores, places, axis=2, batch_dims=1), NEVER)
    is_step = rlx.less(rlx.expand_dims(rlx.arange(t), 1), rlx.expand_dims(steps, 0))

    width = places.shape[1]
    unreachable = rlx.full((n, 2), NEVER, dtype=dtype_of(scores))
    first = rlx.broadcast_to(rlx.where(rlx.equal(rlx.arange(width), 0), 0.0, NEVER), (n, width))

    def step(reached: Any, now: Any) -> Any:
        here, is_live = now
        moved = rlx.concat([unreachable, reached], axis=1)
        by_skip = rlx.where(skips, moved[:, :width], NEVER)
        come = rlx.logaddexp(rlx.logaddexp(reached, moved[:, 1 : width + 1]), by_skip)
        return rlx.where(rlx.expand_dims(is_live, 1), rlx.add(come, here), reached), None

    reached, _ = rlx.scan(step, rlx.astype(first, dtype_of(scores)), (rlx.moveaxis(label_scores, 1, 0), is_step))
    last = rlx.multiply(lengths, 2)
    at_blank = rlx.gather(reached, last, axis=1, batch_dims=1)
    at_label = rlx.gather(reached, rlx.maximum(rlx.subtract(last, 1), 0), axis=1, batch_dims=1)
    return rlx.negative(rlx.logaddexp(at_blank, rlx.where(rlx.greater(lengths, 0), at_label, NEVER)))


def _between(labels: Any, blanks: Any, end: Any) -> Any:
    """Interleave `[n, l]` and `[n, l]`, the second first, and append `[n, 1]`: `[n, 2l + 1]`."""
    n, count = labels.shape
    return rlx.concat([rlx.reshape(rlx.stack([blanks, labels], axis=2), (n, 2 * count)), end], axis=1)


def _check(scores: Any, labels: Any, steps: Any, lengths: Any) -> None:
    if scores.ndim != 3:
        raise ShapeError(f"ctc_loss: log_probabilities must be [n, t, c], not of {scores.ndim} axes")
    n, t, _ = scores.shape
    if labels.ndim != 2 or labels.shape[0] != n:
        raise ShapeError(f"ctc_loss: labels must be [{n}, l], not {list(labels.shape)}")
    for name, x, limit in (("input_lengths", steps, t), ("label_lengths", lengths, labels.shape[1])):
        if tuple(x.shape) != (n,):
            raise ShapeError(f"ctc_loss: {name} must be [{n}], not {list(x.shape)}")
        is_known = not isinstance(x, Value) and isinstance(limit, int)
        if is_known and dtype_of(x).is_integer and x.size and not 0 <= x.min() <= x.max() <= limit:
            raise ConfigError(f"ctc_loss: {name} must be from 0 to {limit}, not {x.tolist()}")
    for name, x in (("labels", labels), ("input_lengths", steps), ("label_lengths", lengths)):
        if not dtype_of(x).is_integer:
            raise DtypeError(f"ctc_loss: {name} must be integers, not {dtype_of(x)}")

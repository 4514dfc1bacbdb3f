"""Softmax as people write it: exponentials of a row, shifted by its maximum, over their sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rlx_core.ops.operators  # noqa: F401  gives pattern variables their operators
from rlx_core.ir.graph import Value
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import divide, subtract
from rlx_core.ops.reduction import Max, max_axes
from rlx_core.ops.softmax import Softmax, softmax
from rlx_core.ops.structural import Sum, expand, sum_axes
from rlx_core.passes.chains import between, kept_dims
from rlx_core.passes.fusion import declined_if_kept, fusion_of
from rlx_core.passes.rules import Declined, Match, Rule, rewrite, ruleset

__all__ = ["RecogniseSoftmax", "recognise_softmax"]


@ruleset("recognise-softmax")
def recognise_softmax(x: Any) -> Iterator[Rule]:
    """Recognise `exp(x - max x) / sum(exp(x - max x))` along one axis as softmax.

    A row of only -inf gives NaN there, and so does the softmax that is put in its place.
    """
    rule = rewrite("softmax", divide.op).to(as_softmax).giving_up("the last bit")
    yield rule.sampled(x="f32[3, 4]", make=lambda x: written_out(x, 1)).sampled(
        x="f64[2, 3, 4]", make=lambda x: written_out(x, 0)
    )


def written_out(x: Value, axis: int) -> Value:
    weights = exp(x - max_axes(x, axes=(axis,), keep_dim=True))
    return weights / expand(sum_axes(weights, axes=(axis,), keep_dim=True), x.shape)


def as_softmax(match: Match) -> Value | Declined | None:
    weights, total = match.root.operands
    shifted = None if weights is None else operand_of(weights, exp.op)
    difference = None if shifted is None else shifted.node
    if weights is None or total is None or difference is None or type(difference.op) is not subtract.op:
        return None
    x, shift = difference.operands
    if x is None or shift is None or x.type != match.root.type:
        return None
    for axis in range(x.ndim):
        summed = kept_dims(total, Sum, (axis,), x.ndim)
        largest = kept_dims(shift, Max, (axis,), x.ndim)
        if summed is None or summed.operands[0] is not weights:
            continue
        if largest is None or largest.operands[0] is not x:
            return Declined(f"the shift {shift!r} is not the maximum of {x!r} along axis {axis}", "AxisNotLast")
        inner = [difference, weights.node, *between(total, summed), *between(shift, largest)]
        kept = declined_if_kept(match.graph, inner, [*inner, match.root])
        return kept or softmax(match.new(x), axis=axis)
    return None


def operand_of(value: Value, op: type) -> Value | None:
    """The first operand of the node that gives `value`, if it is of `op`."""
    return value.node.operands[0] if type(value.node.op) is op else None


RecogniseSoftmax = fusion_of(recognise_softmax, (Softmax,))

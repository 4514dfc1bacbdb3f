"""Softmax in traced code: exponentials of a row, shifted by its maximum, over their sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx_core.ir.graph import Value
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import divide, subtract
from rlx_core.ops.reduction import max_axes
from rlx_core.ops.softmax import Softmax, softmax
from rlx_core.ops.structural import Sum, expand, sum_axes
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.recognise.chains import between, kept_dims
from rlx_core.passes.recognise.row_normalizers import unshifted


@ruleset("recognise-softmax")
def recognise_softmax(x: Any) -> Iterator[RewriteRule]:
    """Recognise `exp(x - max x) / sum(exp(x - max x))` along one axis as softmax.

    A row of only -inf gives NaN there, and so does the softmax that is put in its place. The maximum may be detached from
    differentiation.
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
    difference = None if weights is None or type(weights.node.op) is not exp.op else weights.node.operands[0]
    if weights is None or total is None or difference is None or type(difference.node.op) is not subtract.op:
        return None
    for axis in range(weights.ndim):
        summed = kept_dims(total, Sum, (axis,), weights.ndim)
        if summed is None or summed.operands[0] is not weights:
            continue
        source = unshifted(difference, axis)
        if source is None:
            x, shift = difference.node.operands
            return Declined(f"the shift {shift!r} is not the maximum of {x!r} along axis {axis}", "AxisNotLast")
        x, nodes = source
        inner = [*between(total, summed), *nodes, weights.node]
        declined = declined_if_kept(match.graph, inner, [*inner, match.root])
        return declined or softmax(match.new(x), axis=axis)
    return None


RecogniseSoftmax = fusion_of(recognise_softmax, (Softmax,))

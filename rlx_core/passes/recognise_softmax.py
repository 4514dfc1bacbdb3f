"""Softmax as people write it: exponentials of a row, shifted by its maximum, over their sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

import rlx_core.ops.operators  # noqa: F401  gives pattern variables their operators
from rlx_core.ir.graph import Node, Value
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import divide, subtract
from rlx_core.ops.reduction import Max, max_axes
from rlx_core.ops.softmax import Softmax, softmax
from rlx_core.ops.structural import Sum, expand, sum_axes
from rlx_core.passes.chains import between, kept_dims
from rlx_core.passes.fusion import declined_if_kept, fusion_of
from rlx_core.passes.rules import Declined, Match, Rule, rewrite, ruleset

__all__ = ["RecogniseSoftmax", "operand_of", "recognise_softmax", "shifted_rows"]


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
    difference = None if weights is None else operand_of(weights, exp.op)
    if weights is None or total is None or difference is None:
        return None
    for row in shifted_rows(difference, total, match.root.type):
        if row.summed is not weights:
            continue
        if not row.is_by_maximum:
            return Declined(
                f"the shift {row.shift!r} is not the maximum of {row.x!r} along axis {row.axis}", "AxisNotLast"
            )
        inner = [*row.nodes, weights.node]
        kept = declined_if_kept(match.graph, inner, [*inner, match.root])
        return kept or softmax(match.new(row.x), axis=row.axis)
    return None


@frozen(eq=False)
class ShiftedRow:
    """A difference `x - shift` beside a sum along an axis: what softmax and its logarithm begin with.

    Attributes:
        summed: What is added up.
        is_by_maximum: Whether the shift is the maximum of x along the axis.
        nodes: The difference, and all nodes that the sum and the maximum pass through.
    """

    x: Value
    shift: Value
    axis: int
    summed: Value
    is_by_maximum: bool
    nodes: tuple[Node, ...]


def shifted_rows(difference: Value, total: Value, like: TensorType) -> Iterator[ShiftedRow]:
    """Every axis along which `total` is a sum, if `difference` is a difference from a value of the type `like`."""
    x, shift = difference.node.operands if type(difference.node.op) is subtract.op else (None, None)
    if x is None or shift is None or x.type != like:
        return
    for axis in range(x.ndim):
        summed, largest = kept_dims(total, Sum, (axis,), x.ndim), kept_dims(shift, Max, (axis,), x.ndim)
        if summed is None or summed.operands[0] is None:
            continue
        is_by_maximum = largest is not None and largest.operands[0] is x
        nodes = (difference.node, *between(total, summed), *(() if largest is None else between(shift, largest)))
        yield ShiftedRow(x, shift, axis, summed.operands[0], is_by_maximum, nodes)


def operand_of(value: Value, op: type) -> Value | None:
    """The first operand of the node that gives `value`, if it is of `op`."""
    return value.node.operands[0] if type(value.node.op) is op else None


RecogniseSoftmax = fusion_of(recognise_softmax, (Softmax,))

"""`log Σ exp(x)` along an axis in traced code: as one op, unshifted, or with the maximum subtracted and added back.

A maximum that is only a shift may be detached from differentiation: its derivative cancels either way.
"""

from __future__ import annotations

from rlx_core.ir.graph import Node, Value
from rlx_core.ir.types import normalize_axes
from rlx_core.ops.activation import exp, log
from rlx_core.ops.arithmetic import add, subtract
from rlx_core.ops.reduction import LogSumExp, Max
from rlx_core.ops.selection import StopGradient
from rlx_core.ops.structural import Expand, Reduction, Reshape, Sum
from rlx_core.passes.engine.fusion import both_orders
from rlx_core.passes.recognise.chains import behind, lies_along
from rlx_core.system.records import frozen


@frozen(eq=False)
class Normalizer:
    """`log Σ exp(x)` along `axis`.

    Attributes:
        nodes: All nodes from x to the result.
    """

    x: Value
    axis: int
    nodes: tuple[Node, ...]


def normalizer_of(value: Value) -> Normalizer | None:
    """Return the log-sum-exp that `value` is, its dims kept, dropped or repeated."""
    node, passed = behind(value, (Reshape, Expand))
    if type(node.op) is not add.op:
        return as_it_stands(value)
    for shift, other in both_orders(node):
        inner = as_it_stands(other) if shift.type == other.type == node.type else None
        source = None if inner is None else unshifted(inner.x, inner.axis)
        if inner is None or source is None:
            continue
        largest, through = behind(shift, (Reshape, StopGradient))
        if is_maximum(largest, source[0], inner.axis):
            return Normalizer(source[0], inner.axis, (*passed, node, *inner.nodes, *source[1], *through, largest))
    return None


def as_it_stands(value: Value) -> Normalizer | None:
    """The normalizer that the op is, or the logarithm of a sum of exponentials."""
    node, passed = behind(value, (Reshape, Expand))
    reduction = summed_over(node, LogSumExp)
    if reduction is not None:
        return Normalizer(*reduction, (*passed, node))
    if type(node.op) is not log.op or node.operands[0] is None:
        return None
    total, through = behind(node.operands[0], (Reshape,))
    summed = summed_over(total, Sum)
    weights = None if summed is None else summed[0].node
    if summed is None or weights is None or type(weights.op) is not exp.op or weights.operands[0] is None:
        return None
    return Normalizer(weights.operands[0], summed[1], (*passed, node, *through, total, weights))


def unshifted(value: Value, axis: int) -> tuple[Value, tuple[Node, ...]] | None:
    """Return `x` and the nodes on the way, where `value` is `x - max x` along an axis."""
    x, shift = value.node.operands if type(value.node.op) is subtract.op else (None, None)
    if x is None or shift is None or x.type != value.type or not lies_along(shift, x.shape, (axis,)):
        return None
    largest, through = behind(shift, (Reshape, Expand, StopGradient))
    return (x, (value.node, *through, largest)) if is_maximum(largest, x, axis) else None


def is_maximum(node: Node, x: Value, axis: int) -> bool:
    """Return whether a node gives the maxima of `x` along an axis."""
    reduced = summed_over(node, Max)
    return reduced is not None and reduced[0] is x and reduced[1] == axis


def summed_over(node: Node, reduction: type[Reduction]) -> tuple[Value, int] | None:
    """The operand and the one axis of a reduction; `None` for anything else."""
    if not isinstance(node.op, reduction) or node.operands[0] is None:
        return None
    axes = normalize_axes(node.op.axes, node.operands[0].ndim)
    return (node.operands[0], axes[0]) if len(axes) == 1 else None

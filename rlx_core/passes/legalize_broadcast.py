"""Broadcasting written out, for targets whose element-wise kernels want equal shapes or a trailing suffix."""

from __future__ import annotations

from typing import Literal

from attrs.validators import in_

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import Shape
from rlx_core.ops.kinds import Elementwise
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import expand, reshape
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph, emit_like, field

Form = Literal["equal", "suffix"]


@define_pass("legalize-broadcast")
class LegalizeBroadcast(Pass):
    """Insert reshape and expand so that element-wise kernels see only the shapes that they take.

    Attributes:
        form: `equal` gives every operand the result's shape; `suffix` also leaves an operand that is the trailing dims of
            the result ([n] next to [b, n]) and scalars as they are.
    """

    form: Form = field(default="suffix", validator=in_(("equal", "suffix")))

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, lambda g: write_out(g, self.form))


def write_out(graph: Graph, form: Form) -> Result:
    """Return `graph` with implicit broadcasts written out; nested graphs are left alone."""
    count = 0

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        nonlocal count
        if not isinstance(node.op, Elementwise | Where):
            return None
        target = node.types[0].shape
        fitted = [v if v is None or fits(v.shape, target, form) else stretched(v, target) for v in operands]
        changed = sum(a is not b for a, b in zip(fitted, operands, strict=True))
        count += changed
        return emit_like(node, fitted) if changed else None

    rebuilt, values = rebuild(graph, replace, by=LegalizeBroadcast.name)
    return Result(rebuilt, values, {"expanded": count}) if count else Result.unchanged(graph)


def fits(shape: Shape, target: Shape, form: Form) -> bool:
    if shape == target:
        return True
    return form == "suffix" and shape == target[len(target) - len(shape) :]


def stretched(x: Value, target: Shape) -> Value:
    """`x` in the shape `target`, by a reshape that adds leading axes and an expand."""
    aligned = (1,) * (len(target) - x.ndim) + x.shape
    return expand(x if x.shape == aligned else reshape(x, aligned), target)

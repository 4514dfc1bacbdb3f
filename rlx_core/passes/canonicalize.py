"""Canonical form: one of several equivalent forms of a computation, so that later passes look for one."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve

from rlx_core.ir.graph import Constant, Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.structural import Expand, Reshape
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph, emit_like

COUNTS_AXES: Final = {
    "rlx.narrow": "axis",
    "rlx.concat": "axis",
    "rlx.flip": "axes",
    "rlx.gather": "axis",
    "rlx.sum": "axes",
    "rlx.transpose": "perm",
    "rlx.softmax": "axis",
    "rlx.log_softmax": "axis",
    "rlx.layer_norm": "axes",
    "rlx.rms_norm": "axes",
}
"""Ops whose attribute counts the axes of their first operand, from either end."""

COUNTS_OWN_AXES: Final = {"rlx.scatter_add": "axis"}
"""The same, of their result: one update a row is `[n]`, and the table that it goes to `[n, size]`."""


@define_pass("canonicalize")
class Canonicalize(Pass):
    """Write axes from the front, dims as they are instead of -1, and constants on the right of commutative ops."""

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, canonicalize)


def canonicalize(graph: Graph) -> Result:
    """`graph` in canonical form; nested graphs are left alone."""
    changed = {n: canonical_op(n) for n in graph.nodes if n.operands}
    swapped = {n for n in graph.nodes if is_out_of_order(n)}
    if not swapped and all(op == n.op for n, op in changed.items()):
        return Result.unchanged(graph)
    count = 0

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        nonlocal count
        op = changed.get(node, node.op)
        if op == node.op and node not in swapped:
            return None
        count += 1
        return emit_like(node, operands[::-1] if node in swapped else operands, op=op)

    rebuilt, values = rebuild(graph, replace, by=Canonicalize.name)
    return Result(rebuilt, values, {"respelt": count})


def canonical_op(node: Node) -> Op:
    """The node's op with its attributes spelt canonically."""
    op = node.op
    first = node.operands[0] if node.operands else None
    if first is None:
        return op
    if isinstance(op, Reshape) and -1 in op.new_shape:
        return Reshape(node.types[0].shape)
    if isinstance(op, Expand) and -1 in op.target:
        return Expand(node.types[0].shape)
    output_axes = COUNTS_OWN_AXES.get(op.name)
    name, rank = (COUNTS_AXES.get(op.name), first.ndim) if output_axes is None else (output_axes, node.types[0].rank)
    if name is None:
        return op
    spelt = op.attributes()[name]
    return op if spelt is None else evolve(op, **{name: from_the_front(spelt, rank)})


def from_the_front(axes: Any, rank: int) -> Any:
    if isinstance(axes, int):
        return normalize_axis(axes, rank)
    return tuple(normalize_axis(a, rank) for a in axes)


def is_out_of_order(node: Node) -> bool:
    """Return whether the op is commutative, a constant is on its left, and none is on its right."""
    if not node.op.is_commutative or len(node.operands) != 2:
        return False
    is_constant = [v is not None and isinstance(v.node.op, Constant) for v in node.operands]
    return is_constant == [True, False]

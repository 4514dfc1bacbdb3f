"""Common subexpressions: one node for each distinct computation."""

from __future__ import annotations

from collections.abc import Hashable

from rlx_core.ir.graph import Graph, GraphArgument, Node, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph, emit_like


@define_pass("cse")
class CommonSubexpressions(Pass):
    """Compute equal expressions once.

    Two nodes are equal if their ops have the same attributes (nested graphs and constant bytes included), the same operands
    and the same result types. Operands of exactly commutative ops may stand in either order. Ops that declare
    themselves impure or barriers are never merged.
    """

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, merge_equal)


def merge_equal(graph: Graph) -> Result:
    """Return `graph` with equal nodes merged into the first of them; nested graphs are left alone."""
    representative: dict[Value, Value] = {}
    names: dict[Node, str] = {}
    first: dict[Hashable, Node] = {}
    for node in graph.nodes:
        survivor = node
        if may_merge(node):
            survivor = first.setdefault(node_key(node, representative), node)
        representative.update(zip(node.results, survivor.results, strict=True))
        if node.name is not None:
            names.setdefault(survivor, node.name)  # a name survives on the node that is left
    merged = sum(representative[n.results[0]].node is not n for n in graph.nodes if n.results)
    if not merged:
        return Result.unchanged(graph)
    new: dict[Value, Value] = {}

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...]:
        survivor = representative[node.results[0]].node if node.results else node
        if survivor is not node:
            return tuple(new[v] for v in survivor.results)
        results = emit_like(node, operands, name=names.get(node))
        new.update(zip(node.results, results, strict=True))
        return results

    rebuilt, values = rebuild(graph, replace)
    return Result(rebuilt, values, {"merged": merged})


def may_merge(node: Node) -> bool:
    return node.op.is_pure and not node.op.is_barrier and not isinstance(node.op, GraphArgument)


def node_key(node: Node, representative: dict[Value, Value]) -> Hashable:
    """Return a key that is equal for nodes with the same computation, with operands named by their representatives."""
    operands = [None if v is None else representative[v] for v in node.operands]
    places = [(-1, 0) if v is None else (v.node.index, v.index) for v in operands]
    if node.op.is_commutative:
        places.sort()
    return node.op, tuple(places), node.types

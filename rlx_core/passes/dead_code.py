"""Dead code: what neither an output nor a declared effect needs."""

from __future__ import annotations

from rlx_core.ir.graph import Builder, Graph, Input, Node, Param, Value
from rlx_core.ir.rewrite import copy_node
from rlx_core.passes.base import Context, Pass, Result, define_pass, each_graph

__all__ = ["DeadCode", "sweep"]


@define_pass("dead-code")
class DeadCode(Pass):
    """Drop the nodes that neither an output nor a declared effect needs.

    Inputs and params stay, used or not: they are the program's signature, and feeding an unused one is no error.
    Nested graphs are swept as well; their signatures stay.
    """

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, sweep)


def sweep(graph: Graph) -> Result:
    """`graph` without its dead nodes; the very same graph if there are none. Nested graphs are left alone."""
    needed = live_nodes(graph)
    if len(needed) == len(graph.nodes):
        return Result.unchanged(graph)
    builder = Builder(graph.name)
    builder.add_guards(graph.guards)
    values: dict[Value, Value] = {}
    for node in graph.nodes:
        if node in needed:
            operands = [None if v is None else values[v] for v in node.operands]
            values.update(zip(node.results, copy_node(builder, node, operands), strict=True))
    swept = builder.finish(values[v] for v in graph.outputs)
    return Result(swept, values, {"removed": len(graph.nodes) - len(needed)})


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that outputs, effects and the signature need."""
    needed = {v.node for v in graph.outputs}
    for node in reversed(graph.nodes):
        if node in needed or isinstance(node.op, Input | Param) or not node.op.is_pure:
            needed.add(node)
            needed.update(v.node for v in node.present())
    return needed

"""Side effects of programs: whether graphs have any, and graphs without them."""

from __future__ import annotations

import attrs

from rlx_core.ir.graph import Builder, Graph, Value, nested_graphs
from rlx_core.ir.rewrite import copy_node


def are_pure(*bodies: Graph) -> bool:
    """Return whether no node of some bodies has an effect, so that the op that runs them may be merged and dropped."""
    return all(n.op.is_pure for body in bodies for n in body.nodes)


def without_effects(graph: Graph) -> Graph:
    """Return the graph without its side effects, for a second evaluation; an effect with a used result is kept."""
    if are_pure(graph):
        return graph
    read = {v for node in graph.nodes for v in node.present()} | graph.output_set
    builder = Builder(graph.name)
    builder.add_guards(graph.guards)
    values: dict[Value, Value] = {}
    for node in graph.nodes:
        if not node.op.is_pure and not any(r in read for r in node.results):
            continue
        operands = [None if v is None else values[v] for v in node.operands]
        if node.op.is_pure or not nested_graphs(node.op):
            values.update(zip(node.results, copy_node(builder, node, operands), strict=True))
            continue
        quiet = attrs.evolve(node.op, **{name: without_effects(body) for name, body in nested_graphs(node.op).items()})
        new = builder.emit(quiet, operands, name=node.name, origin=node.origin, types=node.types)
        values.update(zip(node.results, new, strict=True))
    return builder.finish(values[v] for v in graph.outputs)

"""Making a graph from a graph: every pass and every transformation is one walk of this engine.

A rewriter sees each node with its operands already in the new graph and returns replacement values, or `None` to keep
the node. Names, origins, guards and the order of inputs and params survive; the map from old to new values is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rlx_core.ir.dims import SizeGuard, SizeSymbol, free_symbols
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, as_results, building, symbols_inside
from rlx_core.ir.provenance import originating

Replace = Callable[[Node, "tuple[Value | None, ...]"], "Value | Sequence[Value] | None"]


def rebuild(graph: Graph, replace: Replace, *, by: str | None = None) -> tuple[Graph, dict[Value, Value]]:
    """Return a copy of `graph` in which each node is replaced by the result of `replace(node, new_operands)`.

    Args:
        graph: The graph to copy.
        replace: Returns the new results of a node, or `None` for "copy it". Ops it applies go to the new graph.
        by: The pass, stamped on nodes that the walk creates.

    Returns:
        The new graph and the map from old to new values.
    """
    builder = Builder(graph.name)
    builder.add_guards(graph.guards)
    values: dict[Value, Value] = {}
    with building(builder):
        for node in graph.nodes:
            operands = tuple(None if v is None else values[v] for v in node.operands)
            with originating(node.origin if by is None else node.origin.by(by)):
                results = replace(node, operands)
            new = copy_node(builder, node, operands) if results is None else as_results(results)
            assert len(new) == len(node.results), f"{by}: {node!r} was replaced by {len(new)} values"
            for old, value in zip(node.results, new, strict=True):
                assert old.type is value.type or old.type == value.type or not old.type.is_static, (
                    f"{by}: {old.type} became {value.type} at {node!r}"
                )
                values[old] = value
        return builder.finish(values[v] for v in graph.outputs), values


def copy_node(builder: Builder, node: Node, operands: Sequence[Value | None]) -> tuple[Value, ...]:
    """The same op on new operands; its types are inferred again only if an operand's type changed."""
    assert len(operands) == len(node.operands), f"{node!r} was given {len(operands)} operands"
    types = node.types if node.operand_types == tuple(None if v is None else v.type for v in operands) else None
    return builder.emit(node.op, operands, name=node.name, origin=node.origin, types=types)


def copy_nodes(builder: Builder, nodes: Iterable[Node], values: dict[Value, Value]) -> None:
    """Copy nodes in their order; `values`, from old values to new ones, has their operands, and receives their results."""
    for node in nodes:
        operands = [None if v is None else values[v] for v in node.operands]
        values.update(zip(node.results, copy_node(builder, node, operands), strict=True))


def needed_nodes(
    nodes: Sequence[Node], outputs: Iterable[Value], is_kept: Callable[[Node], bool] = lambda node: False
) -> set[Node]:
    """Return the nodes, in topological order, that some values or the kept ones among `nodes` depend on, and these themselves."""
    needed = {v.node for v in outputs}
    for node in reversed(nodes):
        if node in needed or is_kept(node):
            needed.add(node)
            needed.update(v.node for v in node.present())
    return needed


def subgraph(
    graph: Graph,
    outputs: Sequence[Value],
    nodes: Collection[Node],
    *,
    name: str | None = None,
    guards: Iterable[SizeGuard] = (),
) -> Graph:
    """Return the graph of some of the nodes of `graph`, among them all that `outputs` need; it has the same name by default."""
    builder = Builder(name or graph.name)
    builder.add_guards(guards)
    values: dict[Value, Value] = {}
    copy_nodes(builder, (node for node in graph.nodes if node in nodes), values)
    return builder.finish(values[v] for v in outputs)


def guards_over(nodes: Iterable[Node], guards: Iterable[SizeGuard]) -> list[SizeGuard]:
    """The guards over sizes that some of the nodes mention; the nodes that needed the others have been removed."""
    guards = list(guards)
    if not guards:
        return []
    known = frozenset[SizeSymbol]().union(*(symbols_inside(node.op) for node in nodes))
    return [guard for guard in guards if free_symbols(guard.left, guard.right) <= known]


def inline(builder: Builder, graph: Graph, bindings: Mapping[str, Value]) -> tuple[Value, ...]:
    """The outputs of `graph` with its nodes copied into `builder`; inputs and params are bound by name.

    Leaves that are not in `bindings` are copied as leaves, so that a param of the body becomes one of the enclosing graph.
    """
    values: dict[Value, Value] = {}
    builder.add_guards(graph.guards)
    for node in graph.nodes:
        if isinstance(node.op, GraphArgument) and node.op.label in bindings:
            values[node.result] = bindings[node.op.label]
        else:
            copy_nodes(builder, (node,), values)
    return tuple(values[v] for v in graph.outputs)

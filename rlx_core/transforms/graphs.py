"""Helpers of all sweeps over graphs: live nodes, names and values, zeros, and copies of subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx_core.errors import DtypeError, Fact, UnknownNameError
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, building
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.rewrite import needed_nodes, subgraph
from rlx_core.ir.types import TensorType
from rlx_core.ops.structural import expand


def padded(node_op: Op, operands: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """Return the operands padded with `None` to the number that the op declares, for its rule."""
    if any(o.is_variadic for o in node_op.operands):
        return tuple(operands)
    return (*operands, *[None] * (len(node_op.operands) - len(operands)))


def operand_name(node: Node, index: int) -> str:
    return operand_names(node.op, len(node.operands))[index]


def zeros(builder: Builder, type: TensorType) -> Value:
    """Return a materialised zero of this dtype and these dims."""
    return _filled(builder, 0, type)


def ones(builder: Builder, type: TensorType) -> Value:
    return _filled(builder, 1, type)


def placeholder(builder: Builder, type: TensorType) -> Value:
    """Return a new, unshared zero: the placeholder for the argument of a linear map while it is recorded."""
    return _filled(builder, 0, type, shared=False)


def _filled(builder: Builder, number: int, type: TensorType, *, shared: bool = True) -> Value:
    with building(builder):
        scalar = builder.constant(number, type.dtype, shared=shared)
        return expand(scalar, type.shape) if type.rank else scalar


def dependents(nodes: Iterable[Node], sources: Iterable[Value]) -> set[Value]:
    """Return `sources` and every differentiable value that is computed from one of them through differentiable values."""
    result = set(sources)
    for node in nodes:
        if any(v in result for v in node.present()):
            result.update(r for r in node.results if r.dtype.is_differentiable)
    return result


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[Node]:
    """Return the nodes that `outputs` depend on, in order; others need not be differentiated."""
    needed = needed_nodes(nodes, outputs)
    return [node for node in nodes if node in needed]


def find_value(graph: Graph, handle: str | Value) -> Value:
    """Return the value of `graph` that a name or a handle refers to.

    Raises:
        UnknownNameError: The graph has no such name, or the handle is a value of another graph.
    """
    if isinstance(handle, str):
        return graph.find(handle)
    if not isinstance(handle, Value):
        raise UnknownNameError(f"graph {graph.name}: a value is a name or a handle, not {handle!r}")
    node = handle.node
    if node.index < len(graph.nodes) and graph.nodes[node.index] is node:
        return handle
    raise UnknownNameError(
        f"graph {graph.name}: {handle!r} is a value of graph {node.owner.name}",
        Fact("value", handle.type, node.origin.source),
        hint="carry it through the value map of the pass that made this graph, or use its name",
    )


def differentiable(graph: Graph, handle: str | Value, transformation: str, derivative: str) -> Value:
    """Return the value that a handle refers to, which must have derivatives.

    Args:
        transformation: The caller (`grad`), and `derivative`, its result (`gradient`): for the error.

    Raises:
        DtypeError: The value has an integer or bool dtype. See also `find_value`.
    """
    value = find_value(graph, handle)
    if not value.dtype.is_differentiable:
        name = handle if isinstance(handle, str) else repr(handle)
        raise DtypeError(
            f"{transformation}: {name} is {value.type}; {value.dtype} has no {derivative}",
            Fact("value", value.type, value.node.origin.source),
        )
    return value


def fresh_name(taken: Iterable[str], name: str) -> str:
    """Return `name`, or `name` with the lowest number that makes it unique."""
    known = set(taken)
    count, candidate = 1, name
    while candidate in known:
        count += 1
        candidate = f"{name}__{count}"
    return candidate


def pruned(
    graph: Graph,
    outputs: Sequence[Value],
    *,
    name: str | None = None,
    without: Iterable[str] = (),
    effects: Iterable[Node] = (),
) -> Graph:
    """Return the graph with these outputs: the nodes that they need, and the leaves that are fed.

    Args:
        graph: The graph to copy.
        outputs: Values of it.
        name: Another name for the copy.
        without: Inputs to leave out although they are fed; nothing the outputs need may read them.
        effects: Nodes that are kept for their side effects.
    """
    dropped = set(without)
    fed = {n for n in graph.nodes if isinstance(n.op, GraphArgument) and n.op.label not in dropped}
    live = needed_nodes(graph.nodes, [*outputs, *(r for n in effects for r in n.results)])
    return subgraph(graph, outputs, fed | live, name=name, guards=graph.guards)

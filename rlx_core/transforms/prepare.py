"""Preparation of a graph for a transformation: ops without a rule of their own are replaced by their decomposition, and ops
that can save residuals for their derivative do so.

Only nodes that the transformation will visit are decomposed, so a forward pass keeps its fused ops and blocks wherever no
derivative flows. Decomposing before the sweep, not during it, lets the derivative reuse the forward values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from rlx_core.ir.graph import Builder, Graph, GraphArgument, Input, Node, Value, as_results
from rlx_core.ir.module import expect_graph
from rlx_core.ir.rewrite import copy_node, rebuild
from rlx_core.ir.rules import CustomDerivative, Kind
from rlx_core.ops.call import Call
from rlx_core.transforms.engine import STANDARD, Engine, rule_for
from rlx_core.transforms.graphs import find_value, live_nodes

_OTHER_MODE: Mapping[Kind, Kind] = {"vjp": "jvp", "jvp": "vjp"}


def must_decompose(engine: Engine, kind: Kind, node: Node) -> bool:
    """Return whether the rule of `node` can only come from its decomposition."""
    op = node.op
    if engine.rule(op, kind) is not None or engine.rule(op, "decompose") is None:
        return False
    has_other = kind in _OTHER_MODE and engine.rule(op, _OTHER_MODE[kind]) is not None
    return not (isinstance(op, CustomDerivative) and has_other)


def prepare(
    graph: Graph, kind: Kind, wrt: Iterable[str | Value], *, engine: Engine = STANDARD
) -> tuple[Graph, dict[Value, Value]]:
    """Return the graph with every node that `kind` would visit decomposed as far as its rules require.

    Args:
        graph: The graph to prepare; HIR and MIR alike.
        kind: The transformation that follows.
        wrt: Names or values that it starts from.
        engine: The source of rules.

    Returns:
        The new graph and the map from old to new values.
    """
    expect_graph("prepare", graph)
    builder = Builder(graph.name)
    values = copy_prepared(builder, graph, kind, [find_value(graph, w) for w in wrt], engine=engine)
    return builder.finish(values[v] for v in graph.outputs), values


def copy_prepared(
    builder: Builder,
    graph: Graph,
    kind: Kind,
    wrt: Iterable[Value],
    *,
    bindings: Mapping[str, Value] | None = None,
    engine: Engine = STANDARD,
) -> dict[Value, Value]:
    """Copy `graph` into `builder`, prepared for `kind`; returns the map from old to new values.

    Args:
        builder: The destination of the nodes.
        graph: The graph to copy.
        kind: The transformation that follows.
        wrt: Values of `graph` that it starts from.
        bindings: The values of inputs and params, by name; the others are copied as leaves.
        engine: The source of rules.
    """
    targets = set(wrt)
    live = {n.index for n in live_nodes(graph.nodes, graph.outputs)}
    active: set[Value] = set()
    values: dict[Value, Value] = {}
    builder.add_guards(graph.guards)
    for node in graph.nodes:
        if isinstance(node.op, GraphArgument) and node.op.label in (bindings or {}):
            assert bindings is not None
            values[node.result] = bindings[node.op.label]
        else:
            operands = [None if v is None else values[v] for v in node.operands]
            # A value that is requested by handle is not decomposed: its decomposition might be one of its own operands.
            keeps = node.index not in live or any(r in targets for r in node.results)
            values.update(zip(node.results, _copy(builder, node, operands, kind, active, engine, keeps), strict=True))
        active.update(values[r] for r in node.results if r in targets)
    return values


def _copy(
    builder: Builder,
    node: Node,
    operands: Sequence[Value | None],
    kind: Kind,
    active: set[Value],
    engine: Engine,
    keeps: bool = False,
) -> tuple[Value, ...]:
    is_active = any(v in active for v in operands if v is not None)
    if is_active and not keeps and _differs(node, kind) and must_decompose(engine, kind, node):
        return _take_apart(builder, node, operands, kind, active, engine)
    if is_active and kind != "batch" and node.op.saving is not None and _differs(node, kind):
        with rule_for(engine, builder, node, kind):
            results = as_results(node.op.saving(*operands))[: len(node.results)]
    else:
        results = copy_node(builder, node, operands)
    if is_active:
        active.update(r for r in results if kind == "batch" or r.dtype.is_differentiable)
    return results


def _differs(node: Node, kind: Kind) -> bool:
    return kind == "batch" or any(t.dtype.is_differentiable for t in node.types)


def _take_apart(
    builder: Builder,
    node: Node,
    operands: Sequence[Value | None],
    kind: Kind,
    active: set[Value],
    engine: Engine,
) -> tuple[Value, ...]:
    with rule_for(engine, builder, node, "decompose"):
        body = engine.decomposition(node.op, [None if v is None else v.type for v in operands])
    bound = dict(zip(body.input_types, (v for v in operands if v is not None), strict=True))
    local: dict[Value, Value] = {}
    for inner in body.nodes:
        if isinstance(inner.op, Input):
            local[inner.result] = bound[inner.op.label]
            continue
        renamed = _named_like(node, inner, body)
        inner_operands = [None if v is None else local[v] for v in inner.operands]
        local.update(zip(inner.results, _copy(builder, renamed, inner_operands, kind, active, engine), strict=True))
    return tuple(local[v] for v in body.outputs)


def _named_like(node: Node, inner: Node, body: Graph) -> Node:
    """Return `inner`, with the name of the node that it replaces if it computes that node's first result."""
    is_first = node.name is not None and inner.name is None and body.outputs[0] is inner.results[0]
    return evolve(inner, name=node.name) if is_first else inner


def inline_calls(graph: Graph) -> tuple[Graph, dict[Value, Value]]:
    """Return the graph with every call replaced by the body that it calls, calls inside bodies included."""
    expect_graph("inline_calls", graph)
    result, values = rebuild(graph, _inline_call, by="inline-calls")
    while any(isinstance(n.op, Call) for n in result.nodes):
        result, again = rebuild(result, _inline_call, by="inline-calls")
        values = {old: again[new] for old, new in values.items()}
    return result, values


def _inline_call(node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Call):
        return None
    return node.op.decompose(*(v for v in operands if v is not None))

"""Correspondence of equal values between two graphs."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_core.ir.graph import Graph, GraphArgument, Value


def with_equal_nodes(known: Mapping[Value, Value], graph: Graph, other: Graph) -> dict[Value, Value]:
    """Return value of `graph` → the equal value of `other`: the known ones, and the ones that follow through equal nodes."""
    mapping = dict(known)
    nodes = {(n.op, n.operands): n for n in other.nodes if n.op.is_pure and not isinstance(n.op, GraphArgument)}
    for node in graph.nodes:
        if node.op.is_pure and not isinstance(node.op, GraphArgument) and all(v in mapping for v in node.present()):
            same = nodes.get((node.op, tuple(None if v is None else mapping[v] for v in node.operands)))
            if same is not None:
                mapping.update(zip(node.results, same.results, strict=True))
    return mapping

"""The result of a pass that converts some operations and reports the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.engine.base import Conversion, Result


def converted(
    graph: Graph,
    name: str,
    reasons: Mapping[Node, str | None],
    entries: Sequence[Conversion],
    convert: Callable[..., Value],
) -> Result:
    """Return the result of a pass: the graph with other values for some nodes.

    Args:
        graph: The graph.
        name: The name of the pass.
        reasons: Candidates, each with the reason why it is kept; `None` if it is converted.
        entries: The report's entries.
        convert: From a node, and its operands in the new graph, to the value that replaces its result.
    """
    chosen = {node for node, reason in reasons.items() if reason is None}
    if not chosen:
        return Result(graph, graph.identity, conversions=entries)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Value | None:
        return convert(node, *(v for v in operands if v is not None)) if node in chosen else None

    new, values = rebuild(graph, replace, by=name)
    return Result(new, values, {"converted": len(chosen)}, conversions=entries)

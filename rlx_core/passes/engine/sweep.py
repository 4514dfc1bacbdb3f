"""Dead-code elimination: removal of nodes that neither an output nor a declared effect needs.

Nodes are removed as a whole. Single results, and unused operands, are removed only for ops in the table `prune` (`pruning.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value
from rlx_core.ir.op import Op, OpModules
from rlx_core.ir.rewrite import copy_nodes, guards_over, needed_nodes
from rlx_core.ir.rules import RuleTable
from rlx_core.passes.engine.base import Result

Pruned = tuple[Op, Sequence[Value], Sequence[int]]
"""A smaller op, its operands, and the places of the results that it still has, in order."""

prune = RuleTable("prune", OpModules({"rlx_core.passes.engine.pruning": "rlx.if rlx.while rlx.scan"}))
"""`(op, used, *operands) -> Pruned | None`: an op that computes the results that are `used`; `None` if all are needed."""


def sweep(graph: Graph) -> Result:
    """Return `graph` without its dead nodes; the same object if it has no dead nodes. Nested graphs are left alone."""
    swept = Result.unchanged(graph)
    while True:
        step, is_pruned = _sweep_once(swept.graph)
        swept = swept.then(step)
        # Nodes that fed only a pruned result are dead now.
        if not is_pruned:
            return swept


def _sweep_once(graph: Graph) -> tuple[Result, bool]:
    """Return `graph` without the nodes that are dead now, and whether results of other nodes were pruned."""
    needed = live_nodes(graph)
    pruned = prunable(graph, needed)
    if len(needed) == len(graph.nodes) and not pruned:
        return Result.unchanged(graph), False
    builder = Builder(graph.name)
    builder.add_guards(guards_over(needed, graph.guards))
    values: dict[Value, Value] = {}
    for node in graph.nodes:
        if node in pruned:
            op, read, places = pruned[node]
            results = builder.emit(op, [values[v] for v in read], name=node.name, origin=node.origin)
            values.update((node.results[place], result) for place, result in zip(places, results, strict=True))
        elif node in needed:
            copy_nodes(builder, (node,), values)
    counts = {"removed": len(graph.nodes) - len(needed), "pruned": len(pruned)}
    swept = builder.finish(values[v] for v in graph.outputs)
    return Result(swept, values, {k: n for k, n in counts.items() if n}), bool(pruned)


def prunable(graph: Graph, needed: set[Node]) -> dict[Node, Pruned]:
    """Return nodes whose op can drop some results or operands that are not read."""
    result: dict[Node, Pruned] = {}
    for node in needed:
        rule = prune.find(type(node.op))
        if rule is None:
            continue
        used = tuple(v in graph.output_set or any(u in needed for u in graph.uses[v]) for v in node.results)
        smaller = rule(node.op, used, *node.operands) if any(used) else None
        if smaller is not None:
            result[node] = smaller
    return result


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that outputs, effects and the signature need."""
    return needed_nodes(
        graph.nodes, graph.outputs, lambda node: isinstance(node.op, GraphArgument) or not node.op.is_pure
    )

"""Inlining: a call of a nested graph becomes the graph's nodes, in place; so does a function with a derivative of its own."""

from __future__ import annotations

from typing import ClassVar

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops.call import Inlined
from rlx_core.passes.engine.base import INLINED, Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.splice import draft

__all__ = ["InlineCalls", "inline_calls"]


@define_pass("inline-calls")
class InlineCalls(Pass):
    """Replace every call by the nodes of the graph that it calls, calls inside that graph included."""

    ensures: ClassVar = frozenset({INLINED})

    def run(self, graph: Graph, context: Context) -> Result:
        # Bodies are inlined first, so that one walk is enough: a body that is copied in holds no call any more.
        return each_graph(graph, inline_calls)


def inline_calls(graph: Graph) -> Result:
    """`graph` with the calls in it replaced; nested graphs are left alone."""
    calls = sum(isinstance(n.op, Inlined) for n in graph.nodes)
    if not calls:
        return Result.unchanged(graph)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        op = node.op
        if not isinstance(op, Inlined):
            return None
        given = [v for v in operands if v is not None]
        made = draft(lambda: op.decompose(*given), op.title)
        assert made is not None, "a call's decomposition is its body"
        return made.place(node)

    return Result(*rebuild(graph, replace, by=InlineCalls.name), {"inlined": calls})

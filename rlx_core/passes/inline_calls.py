"""Inlining: a call of a nested graph becomes the graph's nodes, in place; so do functions with custom derivatives,
and conditionals and loops with constant conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rlx_core.ir.graph import Constant, Graph, Node, Value, as_results
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops.call import Inlined, results_of, zeros
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.structural import reshape
from rlx_core.passes.engine.base import INLINED, Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.splice import draft


@define_pass("inline-calls")
class InlineCalls(Pass):
    """Replace every call by the nodes of the graph that it calls, calls inside that graph included.

    A choice with a constant predicate is a call of one graph, and a loop of one step a call of its body; one of no step is its
    carries.
    """

    ensures: ClassVar = frozenset({INLINED})

    def run(self, graph: Graph, context: Context) -> Result:
        # Bodies are inlined first, so that one walk is enough: a body that is copied in holds no call any more.
        return each_graph(graph, inline_calls)


def inline_calls(graph: Graph) -> Result:
    """Return `graph` with the calls in it replaced; nested graphs are left alone."""
    calls = sum(is_call(n) for n in graph.nodes)
    if not calls:
        return Result.unchanged(graph)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        if not is_call(node):
            return None
        arguments = [v for v in operands if v is not None]
        drafted = draft(lambda: called(node.op, arguments), node.op.name)
        assert drafted is not None, "the meaning of a call is its body"
        return drafted.place(node)

    return Result(*rebuild(graph, replace, by=InlineCalls.name), {"inlined": calls})


def is_call(node: Node) -> bool:
    """Return whether it is known which graph a node runs, and that it does so at most once."""
    op = node.op
    if isinstance(op, If):
        return node.operands[0] is not None and isinstance(node.operands[0].node.op, Constant)
    return isinstance(op, Inlined) or (isinstance(op, Scan) and op.length in (0, 1))


def called(op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Return the results of such a node, from the nodes of its graph."""
    if isinstance(op, If):
        pred, *arguments = operands
        assert isinstance(pred.node.op, Constant), "its predicate is known"
        return results_of(op.then if pred.node.op.value.array else op.otherwise, arguments)
    if not isinstance(op, Scan):
        assert isinstance(op, Inlined), "nothing else is a call"
        assert op.decompose is not None, "its decomposition is its body"
        return as_results(op.decompose(*operands))
    carries, consts, xs = op.split(operands)
    types = op.infer(*(v.type for v in operands))[op.carries :]
    if op.length == 0:
        return (*carries, *(zeros(t) for t in types))
    outputs = results_of(op.body, (*carries, *consts, *(reshape(x, x.shape[1:]) for x in xs)))
    ys = (reshape(y, t.shape) for y, t in zip(outputs[op.carries :], types, strict=True))
    return (*outputs[: op.carries], *ys)

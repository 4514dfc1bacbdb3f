"""Constant folding: computations on literal data alone run now, in the op's own dtype, to the bits of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from attrs import evolve
from attrs.validators import ge

from rlx_core.errors import RlxError
from rlx_core.ir.element_functions import ElementFunctions, preferred_functions
from rlx_core.ir.graph import Builder, Constant, Graph, Literal, Node, Value, literal, nested_graphs
from rlx_core.ir.interpret import interpret
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph, emit_like, field
from rlx_core.passes.engine.bound_values import expands
from rlx_core.system.budget import current_work

Functions: TypeAlias = "Callable[[], ElementFunctions | None]"
"""Returns a target's functions of element-wise ops; called when a constant expression is evaluated."""


def no_functions() -> None:
    """Return no functions: the NumPy references are used."""


@define_pass("fold-constants")
class FoldConstants(Pass):
    """Evaluate every op whose operands are all constants, with the reference interpreter, in the op's own dtype; inexact
    element-wise ops by the target's own functions, so that a folded expression has the bits of a computed one.

    Random and otherwise impure ops, barriers, ops with nested graphs and anything that reads a param are left alone; so is an
    op whose reference refuses the values, which then reports it when the program runs; and so is one that would make a narrow
    weight wide.

    Attributes:
        limit: The most bytes that one folded result may have; larger ones are left to the program. The most bytes of all results
            together are `budget.folded`.
    """

    limit: int = field(default=1 << 20, validator=ge(0))  # bytes

    def run(self, graph: Graph, context: Context) -> Result:
        target = context.target
        functions = preferred_functions if target is None else lambda: target.element_functions
        return each_graph(graph, lambda g: fold(g, self.limit, functions))


def fold(graph: Graph, limit: int, functions: Functions = no_functions) -> Result:
    """Return `graph` with constant expressions of at most `limit` bytes replaced by literals; nested graphs are left alone."""
    if not any(may_fold(n, limit) and all(isinstance(v.node.op, Constant) for v in n.present()) for n in graph.nodes):
        return Result.unchanged(graph)
    folded = 0

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        nonlocal folded
        if not may_fold(node, limit):
            return None
        literals = [None if v is None else literal_of(v) for v in operands]
        if any(v is not None and constant is None for v, constant in zip(operands, literals, strict=True)):
            return None
        work = current_work()
        if work is not None:
            work.fold(sum(t.static_nbytes for t in node.types), f"folding {node.op.title}")
        results = evaluate(node, literals, functions)
        if results is None:
            return None
        folded += 1
        # Only a single result can keep the node's name: a name is unique in a graph.
        keep = node if len(results) == 1 else evolve(node, name=None)
        return tuple(
            emit_like(keep, (), op=Constant(value), types=(t,))[0] for value, t in zip(results, node.types, strict=True)
        )

    rebuilt, values = rebuild(graph, replace)
    return Result(rebuilt, values, {"folded": folded} if folded else {})


def literal_of(value: Value) -> Literal | None:
    """The data of a constant, or `None` for anything else."""
    op = value.node.op
    return op.value if isinstance(op, Constant) else None


def may_fold(node: Node, limit: int) -> bool:
    if node.is_leaf or not node.op.is_pure or node.op.is_barrier or nested_graphs(node.op):
        return False
    if not all(t.is_static and t.static_nbytes <= limit for t in node.types):
        return False
    # A product may read the narrow constant.
    return not expands(sum(t.static_nbytes for t in node.types), [v.type for v in node.present() if v.type.is_static])


def evaluate(node: Node, literals: Sequence[Literal | None], functions: Functions) -> list[Literal] | None:
    """The results of one node on literals, or `None` if the op has none for these values."""
    builder = Builder(node.op.name)
    operands = [None if x is None else builder.constant(x) for x in literals]
    graph = builder.finish(builder.emit(node.op, operands, types=node.types))
    try:
        arrays = interpret(graph, {}, functions=functions())
    except (RlxError, ArithmeticError, ValueError):  # numpy.linalg.LinAlgError is a ValueError
        return None
    return [literal(np.asarray(a), t.dtype) for a, t in zip(arrays, node.types, strict=True)]

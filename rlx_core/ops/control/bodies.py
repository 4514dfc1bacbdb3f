"""Helpers for the bodies of control-flow ops: which inputs reach which outputs, and derived bodies. No ops here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import AxisNameError, Fact, RlxError, ShapeError, WrongInputCountError
from rlx_core.ir.graph import Constant, Graph, Node, Value
from rlx_core.ir.interpret import evaluate_nested
from rlx_core.ir.mesh import nodes_over
from rlx_core.ir.op import Op, Zero
from rlx_core.ir.rewrite import guards_over, needed_nodes, subgraph
from rlx_core.ir.rules import Replicated, nested
from rlx_core.ir.types import TensorType, listed
from rlx_core.ops.call import expect_operands
from rlx_core.ops.structural import Expand

Run = Callable[[str, Sequence[np.ndarray]], Sequence[np.ndarray]]
"""A function that runs one of an op's graphs, by the name of its attribute."""


def evaluate_attribute(op: Op, name: str, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Run a graph with the reference interpreter (a `Run`)."""
    return evaluate_nested(getattr(op, name), arrays)


def names(body: Graph) -> list[str]:
    """Return the names of a body's inputs, in order."""
    return list(body.input_types)


def expect_inputs(op: Op, attribute: str, body: Graph, types: Sequence[TensorType]) -> None:
    """Require that a body takes operands of these types.

    Raises:
        WrongInputCountError, ShapeError, DtypeError: The number or a type of its inputs differs.
    """
    try:
        expect_operands(body, types)
    except RlxError as error:
        raise error.with_fact(Fact("graph", f"{op.title}.{attribute}")) from None


def expect_agreement(op: Op, what: str, *graphs: Graph) -> None:
    """Require that a graph that runs for only some of the examples does not communicate over the axis that is being mapped.

    Raises:
        AxisNameError: It does: the other examples would not take part.
    """
    names = nested().mesh.names
    for graph in graphs if names else ():
        for node in nodes_over(graph, names):
            raise AxisNameError(
                f"{op.title}: {what} differs along axis {names[0]!r}, and {node.op.title} over {names[0]!r} is inside",
                Fact("collective", node.label, node.origin.source),
                hint=f"combine {what} over the axis first (rlx.pmax), or move the collective out",
            )


def expect_same_types(what: str, expected: Sequence[TensorType], actual: Sequence[TensorType]) -> None:
    """Require that the types that a body returns match its operands, or the results of another body.

    Raises:
        WrongInputCountError: Their number differs.
        ShapeError: A type differs; the error names the first, with both types.
    """
    if len(expected) != len(actual):
        raise WrongInputCountError(f"{what}: there are {len(actual)} ({listed(actual)}), not {len(expected)}")
    for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a != b:
            raise ShapeError(f"{what} {number} is {b}, and must be {a}")


def part(body: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """Return the body with some of its inputs and outputs, and only the nodes and guards that these outputs need."""
    selected = [body.outputs[i] for i in outputs]
    needed = needed_nodes(body.nodes, [*selected, *(body.inputs[i] for i in inputs)], _has_effects)
    return subgraph(body, selected, needed, guards=guards_over(needed, body.guards))


def _has_effects(node: Node) -> bool:
    return not node.op.is_pure


def read_inputs(body: Graph, outputs: Iterable[int]) -> set[int]:
    """Return the positions of the inputs that some outputs, or effects, need."""
    needed = needed_nodes(body.nodes, [body.outputs[i] for i in outputs], _has_effects)
    return {i for i, v in enumerate(body.inputs) if v.node in needed}


def reached(body: Graph, sources: Sequence[bool]) -> list[bool]:
    """Return which outputs depend on one of the flagged inputs through differentiable values."""
    reachable = {v for v, flag in zip(body.inputs, sources, strict=True) if flag}
    for node in body.nodes:
        if any(v in reachable for v in node.present()):
            reachable.update(r for r in node.results if r.dtype.is_differentiable)
    return [v in reachable for v in body.outputs]


def carry_flags(carries: Sequence[bool], step: Callable[[Sequence[bool]], Sequence[bool]]) -> list[bool]:
    """Return the smallest set of flags of a loop's carries that contains the initial ones and is preserved by a step."""
    flags = list(carries)
    while True:
        after = [a or b for a, b in zip(flags, step(flags), strict=True)]
        if after == flags:
            return flags
        flags = after


def differentiable(values: Iterable[Value]) -> list[int]:
    """Return the positions of values that have tangents."""
    return [i for i, v in enumerate(values) if v.dtype.is_differentiable]


def is_zero(value: Value | Zero) -> bool:
    """Return whether a cotangent is known to be zero: symbolically, or as materialised zeros."""
    if isinstance(value, Zero):
        return True
    node = value.node
    if isinstance(node.op, Expand) and node.operands[0] is not None:
        node = node.operands[0].node
    return isinstance(node.op, Constant) and node.op.value.array.size == 1 and not node.op.value.array.any()


def cost_of(body: Graph) -> Any:
    """Return the floating-point operations of a body: the sum over the nodes that have a cost."""
    counted = [n.op.cost(*n.operand_types) for n in body.nodes if n.op.cost is not None]
    return sum(counted)


def with_axis_where(values: Iterable[Value], flags: Sequence[bool]) -> tuple[Value | Replicated, ...]:
    """Return the results of a batching rule, with those without the new axis marked."""
    return tuple(v if flag else Replicated(v) for v, flag in zip(values, flags, strict=True))

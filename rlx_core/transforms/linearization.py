"""Linearisation: split a program at a point into residuals that are computed once and a linear map of the tangents."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.graph import Builder, Constant, Graph, Input, Value, leaf_name
from rlx_core.ir.module import expect_graph
from rlx_core.ir.rewrite import copy_node
from rlx_core.system.records import frozen
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.graphs import dependents, fresh_name, live_nodes, pruned
from rlx_core.transforms.jvp import jvp_graph


@frozen(eq=False)
class Linearized:
    """A program split in two.

    Attributes:
        primal: The inputs and params of the program in, [outputs.., residuals..] out.
        linear: The inputs `residual_k` and `tangent_<name>` in, one tangent per output out; linear in the tangents.
        residual_count: The number of outputs of `primal` that are residuals.
    """

    primal: Graph
    linear: Graph
    residual_count: int


def linearize(graph: Graph, names: Sequence[str | Value], *, engine: Engine = STANDARD) -> Linearized:
    """Split the derivative of `graph` along `names` into the part that does not depend on tangents and the part that does.

    Nodes that the tangents do not reach belong to the primal program, so the linear one repeats no work.

    Raises:
        UnknownNameError, DtypeError, MissingRuleError: As for `jvp_graph`.
    """
    expect_graph("linearize", graph)
    both = jvp_graph(graph, names, engine=engine)
    count = len(graph.outputs)
    tangents = both.inputs[len(graph.inputs) :]
    unknown = dependents(both.nodes, tangents)
    live = {n.index for n in live_nodes(both.nodes, both.outputs[count:])}
    builder = Builder(f"{graph.name}_linear")
    values: dict[Value, Value] = {}
    residuals: list[Value] = []
    taken = {*both.names}

    def known(value: Value) -> Value:
        """Return the linear part's copy of a value of the primal part: constants are copied, others become residuals."""
        if value not in values:
            if isinstance(value.node.op, Constant):
                (values[value],) = copy_node(builder, value.node, ())
            else:
                name = fresh_name(taken, f"residual_{len(residuals)}")
                taken.add(name)
                values[value] = builder.input(name, value.type, origin=value.node.origin)
                residuals.append(value)
        return values[value]

    for node in both.nodes:
        if any(r in unknown for r in node.results) and (node.index in live or isinstance(node.op, Input)):
            operands = [None if v is None else known(v) for v in node.operands]
            values.update(zip(node.results, copy_node(builder, node, operands), strict=True))
    linear = builder.finish([known(v) for v in both.outputs[count:]])
    effects = [n for n in both.nodes if not n.op.is_pure and not any(r in unknown for r in n.results)]
    primal = pruned(
        both,
        [*both.outputs[:count], *residuals],
        name=f"{graph.name}_primal",
        without=map(leaf_name, tangents),
        effects=effects,
    )
    return Linearized(primal, linear, len(residuals))

"""Promotion: listed params become inputs, fed on every run instead of bound once."""

from __future__ import annotations

from collections.abc import Collection

from rlx_core.errors import UnknownNameError, nearest
from rlx_core.ir.graph import Graph, Input, Node, Param, Value
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, emit_like


@define_pass("promote-params")
class PromoteParams(Pass):
    """Make params inputs, under the same names and in the same places.

    Attributes:
        names: The params; a name that is not a param is an error.
    """

    names: tuple[str, ...] = ()

    def run(self, graph: Graph, context: Context) -> Result:
        return promote_params(graph, self.names)


def promote_params(graph: Graph, names: Collection[str]) -> Result:
    """Return `graph` with the params in `names` as inputs.

    Raises:
        UnknownNameError: A name is no param; the params are listed.
    """
    known = graph.param_types
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UnknownNameError(
                f"promote-params: {graph.name} has no param {name!r} (params: {listed})", hint=nearest(name, known)
            )
    if not names:
        return Result.unchanged(graph)
    chosen = frozenset(names)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        op = node.op
        if isinstance(op, Param) and op.label in chosen:
            return emit_like(node, (), op=Input(op.label, op.type))
        return None

    return Result(*rebuild(graph, replace), {"promoted": len(chosen)})

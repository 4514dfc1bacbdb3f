"""Decomposition of regions: all of them, or the ones above a target's limits. The exact inverse of region formation."""

from __future__ import annotations

from typing import ClassVar

from attrs.validators import ge, optional

from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, define_pass, each_graph, field
from rlx_core.passes.engine.splice import draft


@define_pass("unfuse-regions")
class UnfuseRegions(Pass):
    """Replace every element-wise region by its chain.

    Attributes:
        always: Whether it runs even if `fusion.unfuse-regions` is not set.
    """

    requires: ClassVar = frozenset({LOWERED})

    always: bool = True

    def run(self, graph: Graph, context: Context) -> Result:
        is_enabled = self.always or getattr(context.settings.get("fusion"), "unfuse_regions", False)
        return each_graph(graph, lambda g: unfuse(g, None, None)) if is_enabled else Result.unchanged(graph)


@define_pass("clip-regions")
class ClipRegions(Pass):
    """Replace the element-wise regions that are larger than the target's limits by their chains.

    Attributes:
        steps, inputs: The most of each; the target's own limits if not given.
    """

    requires: ClassVar = frozenset({LOWERED})

    steps: int | None = field(default=None, validator=optional(ge(1)))
    inputs: int | None = field(default=None, validator=optional(ge(1)))

    def run(self, graph: Graph, context: Context) -> Result:
        target_limits = (None, None) if context.target is None else context.target.region_limits
        steps, inputs = self.steps or target_limits[0], self.inputs or target_limits[1]
        if steps is None and inputs is None:
            return Result.unchanged(graph)
        return each_graph(graph, lambda g: unfuse(g, steps, inputs))


def unfuse(graph: Graph, steps: int | None, inputs: int | None) -> Result:
    """Return `graph` with the regions above the limits decomposed; without limits, all of them."""
    chosen = {n for n in graph.nodes if is_above(n, steps, inputs)}
    if not chosen:
        return Result.unchanged(graph)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        if node not in chosen:
            return None
        drafted = draft(lambda: node.op.decompose(*operands), node.op.name)  # type: ignore[misc]
        assert drafted is not None, "a region has results"
        return as_results(drafted.place_named([node.name]))

    rebuilt, values = rebuild(graph, replace)
    return Result(rebuilt, values, {"unfused": len(chosen)})


def is_above(node: Node, steps: int | None, inputs: int | None) -> bool:
    op = node.op
    if not isinstance(op, ElementwiseRegion):
        return False
    is_unlimited = steps is None and inputs is None
    return (
        is_unlimited
        or (steps is not None and len(op.steps) > steps)
        or (inputs is not None and len(op.access) > inputs)
    )

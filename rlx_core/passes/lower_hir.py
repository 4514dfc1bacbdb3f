"""Lowering of HIR as a pass: every block becomes ops, by the lowering of the fusion policy."""

from __future__ import annotations

from typing import ClassVar

from attrs.validators import in_, optional

from rlx_core.ir.block import Block, FusionPolicy
from rlx_core.ir.graph import Graph, nested_graphs
from rlx_core.ir.hir import has_blocks, lower_hir
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, Stage, define_pass, field


@define_pass("lower-hir")
class LowerHir(Pass):
    """Replace every block by ops, in nested graphs too. Each op remembers the block it came from.

    Attributes:
        policy: `fusable` gives chains of simple ops in which fusion passes find their patterns, `direct` the fused ops
            themselves where the block has them. Default: the configuration's `fusion.policy`.
    """

    stage: ClassVar[Stage] = "hir"
    ensures: ClassVar = frozenset({LOWERED})

    policy: FusionPolicy | None = field(default=None, validator=optional(in_(("fusable", "direct"))))

    def run(self, graph: Graph, context: Context) -> Result:
        if not has_blocks(graph):
            return Result.unchanged(graph)
        policy: FusionPolicy = self.policy or context.settings.get("fusion-policy", "direct")
        return Result(*lower_hir(graph, policy), {"lowered": blocks_in(graph)})


def blocks_in(graph: Graph) -> int:
    """Return the number of blocks, the ones of nested graphs included."""
    inner = (blocks_in(body) for node in graph.nodes for body in nested_graphs(node.op).values())
    return sum(isinstance(node.op, Block) for node in graph.nodes) + sum(inner)

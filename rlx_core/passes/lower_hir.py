"""Lowering of HIR: every block becomes ops, by the lowering that the fusion policy asks for."""

from __future__ import annotations

from typing import ClassVar, Literal

from attrs import evolve
from attrs.validators import in_, optional

from rlx_core.ir.block import Block, FusionPolicy, lower_block
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.provenance import originating
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.base import LOWERED, Context, Pass, Result, define_pass, each_graph, field
from rlx_core.passes.splice import draft

__all__ = ["LowerHir", "lower_blocks"]

DEPTH = 64
"""Blocks within blocks deeper than this are a block that lowers to itself."""


@define_pass("lower-hir")
class LowerHir(Pass):
    """Replace every block by ops. Each node remembers the block it came from.

    Attributes:
        policy: `fusable` gives chains of simple ops in which fusion passes find their patterns, `direct` the fused ops
            themselves where the block has them. What the configuration's `fusion.policy` says, if not given.
    """

    stage: ClassVar[Literal["hir", "mir", "lir"]] = "hir"
    ensures: ClassVar = frozenset({LOWERED})

    policy: FusionPolicy | None = field(default=None, validator=optional(in_(("fusable", "direct"))))

    def run(self, graph: Graph, context: Context) -> Result:
        policy: FusionPolicy = self.policy or context.settings.get("fusion-policy", "fusable")
        return each_graph(graph, lambda g: lower_blocks(g, policy))


def lower_blocks(graph: Graph, policy: FusionPolicy) -> Result:
    """`graph` with its blocks lowered, blocks inside lowered blocks included; nested graphs are left alone."""
    total = Result.unchanged(graph)
    for _ in range(DEPTH):
        if not any(isinstance(n.op, Block) for n in total.graph.nodes):
            return total
        total = total.then(lower_once(total.graph, policy))
    raise AssertionError(f"blocks of {graph.name} still lower to blocks after {DEPTH} rounds")


def lower_once(graph: Graph, policy: FusionPolicy) -> Result:
    lowered = 0

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        nonlocal lowered
        block = node.op
        if not isinstance(block, Block):
            return None
        lowered += 1
        label = node.origin.block or node.name or f"{block.kind}{node.index}"
        with originating(evolve(node.origin, block=label)):
            made = draft(lambda: lower_block(block, operands, policy), label)
        assert made is not None, f"{block.name} lowered to nothing"
        return made.place(node)

    made, values = rebuild(graph, replace, by="rlx.lower-hir")
    return Result(made, values, {"lowered": lowered})

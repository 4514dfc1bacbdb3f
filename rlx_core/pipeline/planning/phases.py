"""Phases of a run: before it, in it, or after its last heavy computation.

Derived from declarations of ops (`Op.category`, `Op.is_sampler`). Informative: only uploads that
may start early, and reports, depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Phase


def phases(nodes: Sequence[Node]) -> dict[Node, Phase]:
    """Node → phase, for a schedule with or without leaves.

    Leaves are the prologue. Samplers, and all nodes after the last node that computes or samples, are the epilogue.
    """
    last = max((i for i, node in enumerate(nodes) if _is_heavy(node)), default=len(nodes))

    def phase(index: int, node: Node) -> Phase:
        if node.is_leaf:
            return "prologue"
        return "epilogue" if node.op.is_sampler or index > last else "steady-state"

    return {node: phase(i, node) for i, node in enumerate(nodes)}


def _is_heavy(node: Node) -> bool:
    return node.op.is_sampler or node.op.category == "compute"

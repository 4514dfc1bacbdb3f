"""What a checkpointed function keeps for its reverse derivative: functions of a node, true where its results are kept.

Any such function is a policy; these are the usual ones, by the names that JAX gave them.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.ir.graph import Node
from rlx_core.ops.derivatives.checkpoint import CheckpointName

__all__ = ["Policy", "dots_saveable", "everything_saveable", "nothing_saveable", "save_only_these_names"]

Policy = Callable[[Node], bool]
"""Whether the results of a node are kept."""


def nothing_saveable(node: Node) -> bool:
    """Only the arguments are kept."""
    return False


def everything_saveable(node: Node) -> bool:
    """All that the derivative needs is kept, as without a checkpoint."""
    return True


def dots_saveable(node: Node) -> bool:
    """Results of products are kept: `matmul`, `einsum`, `nn.linear`, convolutions; what is cheap is computed again."""
    return node.op.category == "compute"


def save_only_these_names(*names: str) -> Policy:
    """Values are kept that were given one of these names by `rlx.checkpoint_name`."""
    chosen = frozenset(names)

    def is_chosen(node: Node) -> bool:
        return isinstance(node.op, CheckpointName) and node.op.label in chosen

    return is_chosen

"""Checkpoint policies: functions of a node that return whether its results are saved for the reverse derivative.

Any such function is a policy; these are the usual ones, by their names in JAX.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.ir.graph import Node
from rlx_core.ops.derivatives.checkpoint import CheckpointName

__all__ = ["Policy", "dots_saveable", "everything_saveable", "nothing_saveable", "save_only_these_names"]

Policy = Callable[[Node], bool]
"""Returns whether the results of a node are saved."""


def nothing_saveable(node: Node) -> bool:
    """Save only the arguments."""
    return False


def everything_saveable(node: Node) -> bool:
    """Save all values that the derivative needs, as without a checkpoint."""
    return True


def dots_saveable(node: Node) -> bool:
    """Save results of products: `matmul`, `einsum`, `nn.linear`, convolutions; recompute the cheaper values."""
    return node.op.category == "compute"


def save_only_these_names(*names: str) -> Policy:
    """Save values that were given one of these names by `rlx.checkpoint_name`."""
    chosen = frozenset(names)

    def is_chosen(node: Node) -> bool:
        return isinstance(node.op, CheckpointName) and node.op.label in chosen

    return is_chosen

"""Errors of native code that refuses a matrix: the errors of the references, encoded as a number."""

from __future__ import annotations

from rlx_core.kit import Fault
from rlx_custom_ops.errors import BATCH_INDEX, MatrixRefusal, listed

__all__ = ["fault_of"]


def fault_of(refusal: MatrixRefusal, leading: tuple[int, ...], limit: int) -> Fault:
    """Return the fault whose number encodes which matrix of a stack is refused, and the offending value.

    Args:
        leading: Dims of the stack.
        limit: The number is the index of the matrix times `limit`, plus the value, which is less.
    """
    axes = len(leading)
    return Fault(
        refusal.message(["{}"] * axes, "{}"),
        f"{refusal.error.__module__}:{refusal.error.__qualname__}",
        (*leading, limit),
        ((BATCH_INDEX, listed([f"{{{axis}}}" for axis in range(axes)])),),
        refusal.hint,
    )

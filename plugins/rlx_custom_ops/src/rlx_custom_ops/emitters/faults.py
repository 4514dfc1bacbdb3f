"""What native code that refuses a matrix raises: the errors of the references, found by a number."""

from __future__ import annotations

from rlx_core.kit import Fault
from rlx_custom_ops.errors import BATCH_INDEX, MatrixRefusal, listed

__all__ = ["fault_of"]


def fault_of(refusal: MatrixRefusal, leading: tuple[int, ...], most: int) -> Fault:
    """The fault whose number says which matrix of a stack is refused, and what was found in it.

    Args:
        leading: Dims of the stack.
        most: The number is that of the matrix times `most`, plus what was found, which is less.
    """
    axes = len(leading)
    return Fault(
        refusal.message(["{}"] * axes, "{}"),
        f"{refusal.error.__module__}:{refusal.error.__qualname__}",
        (*leading, most),
        ((BATCH_INDEX, listed([f"{{{axis}}}" for axis in range(axes)])),),
        refusal.hint,
    )

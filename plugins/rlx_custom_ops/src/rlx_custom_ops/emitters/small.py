"""Stacks of small matrices: which ones are small, how they lie in memory, whether threads share them, and their errors."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from attrs import frozen

from rlx_core.kit import Fault, Node, TensorType
from rlx_core.pipeline.kernels import condition
from rlx_cpu.emitters import WORTH_THREADS, SystemRows
from rlx_custom_ops.errors import BATCH_INDEX, MatrixRefusal, listed

MAX_SMALL: Final = 32
"""Rows of a matrix up to which a call of LAPACK takes longer."""

MAX_SIDES: Final = 128
"""Right sides up to which a system stays in the first cache."""


@condition(f"{MAX_SMALL} or fewer rows")
def is_small(node: Node) -> bool:
    (a,) = (v.type for v in node.present())
    return a.is_static and a.static_shape[-1] <= MAX_SMALL


@condition(f"{MAX_SMALL} or fewer rows, and from 1 to {MAX_SIDES} right sides")
def is_small_system(node: Node) -> bool:
    a, b = (v.type for v in node.present())
    if not (a.is_static and b.is_static):
        return False
    # Without right sides there is nothing to compute, but a matrix may still be refused: LAPACK's row looks at it.
    n, k = a.static_shape[-1], b.static_shape[-1]
    return n == 0 or (n <= MAX_SMALL and 1 <= k <= MAX_SIDES)


@frozen
class Systems:
    """A stack of matrices, with right sides or without.

    Attributes:
        leading: Dims of the stack.
        rows: Layout of one of them in a workspace.
    """

    leading: tuple[int, ...]
    rows: SystemRows

    @classmethod
    def of(cls, isa: Any, a: TensorType, b: TensorType | None = None) -> Systems:
        *leading, n, _ = a.static_shape
        return cls(tuple(leading), SystemRows.of(isa, a.dtype, n, 0 if b is None else b.static_shape[-1]))

    @property
    def stack(self) -> int:
        return prod(self.leading)

    @property
    def nbytes(self) -> int:
        """Bytes of a matrix."""
        return self.rows.n * self.rows.n * self.rows.dtype.itemsize

    @property
    def sides_nbytes(self) -> int:
        """Bytes of its right sides."""
        return self.rows.n * self.rows.k * self.rows.dtype.itemsize

    @property
    def uses_threads(self) -> bool:
        return self.stack > 1 and self.stack * self.rows.products * self.rows.dtype.itemsize >= WORTH_THREADS


# ---------------------------------------------------------------------------------------------- errors


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

"""Systems with a triangular matrix, which the derivatives of all factorisations use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

import rlx_core as rlx
from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, Zero, define_op, promoted
from rlx_custom_ops.errors import no_divisor
from rlx_custom_ops.ops.matrices import (
    adjoint,
    batched_solve,
    infer_system,
    of_systems,
    stack,
)
from rlx_custom_ops.ops.samples import anything, maker, samples_of, triangular

__rlx_library__ = True

Operation = Literal["none", "transpose", "adjoint"]


@define_op(domain="linalg")
class TriangularSolve(Op):
    """The x with op(a) x = b, where only one triangle of `a` is read, by substitution.

    Shapes:
        a: [..., n, n]    b: [..., n, k]    ->    x: [..., n, k]

    Attributes:
        lower: Whether `a` is the lower triangle; the other triangle is ignored.
        operation: op(a) is a itself ("none"), its "transpose", or its "adjoint" (the conjugate transpose).
        unit_diagonal: The diagonal is taken to be 1 and is not read.

    Raises:
        SingularMatrixError: When the program runs, if an element of the diagonal is exactly 0.

    Source:
        Golub & Van Loan, "Matrix Computations", 4th edition, algorithms 3.1.3 and 3.1.4.
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 2.3.1.
    """

    lower: bool = True
    operation: Operation = "none"
    unit_diagonal: bool = False

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        return infer_system(a, b)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.check_diagonal(a)
        matrix = a if self.operation == "none" else a.swapaxes(-1, -2)
        matrix = matrix.conj() if self.operation == "adjoint" else matrix
        size, is_forward = a.shape[-1], self.lower == (self.operation == "none")
        x = b.copy()
        # By columns, as the machine code does, so that a NaN or an infinity reaches the same unknowns.
        for i in range(size) if is_forward else reversed(range(size)):
            remaining = slice(i + 1, size) if is_forward else slice(0, i)
            if not self.unit_diagonal:
                x[..., i, :] /= matrix[..., i, i, None]
            x[..., remaining, :] -= matrix[..., remaining, i, None] * x[..., None, i, :]
        return x

    def check_diagonal(self, a: np.ndarray) -> None:
        """Require that no element that is divided by is 0.

        Raises:
            SingularMatrixError: One is.
        """
        if self.unit_diagonal:
            return
        for index in stack(a):
            zeros = np.flatnonzero(np.diagonal(a[index]) == 0)
            if zeros.size:
                raise no_divisor("triangular_solve", a.shape[-1])(index, int(zeros[0]))

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, ...]:
        db = self.with_operation({"none": "adjoint", "adjoint": "none", "transpose": "none"})(self.conjugated(a), g)
        if self.operation == "adjoint":
            da = rlx.matmul(y, adjoint(db))
        else:
            da = rlx.matmul(db, adjoint(y))
        if self.operation == "transpose":
            da = rlx.matrix_transpose(da)
        return -self.read_part(da), db

    def jvp(self, t: Sequence[Any], a: Value, b: Value, *, y: Value) -> Any:
        t_a, t_b = t
        if isinstance(t_a, Zero):
            return self(a, t_b)
        moved = rlx.matmul(self.applied(self.read_part(t_a)), y)
        return self(a, -moved if isinstance(t_b, Zero) else t_b - moved)

    batch = batched_solve

    def cost(self, a: TensorType, b: TensorType) -> Dim:
        return b.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(triangular, "3 3, 3 2", "2 3 3, 2 3 1", "2 1 2 2, 2 1 2 1", "0 3 3, 0 3 2")
        for lower in (True, False):
            for operation in ("none", "transpose", "adjoint"):
                for unit, dtype in ((False, "c128"), (True, "f64")):
                    make = maker(anything if unit else triangular, [(3, 3), (3, 2)], dtype == "c128")
                    types = (f"{dtype}[3, 3]", f"{dtype}[3, 2]")
                    yield Sample(*types, make=make, lower=lower, operation=operation, unit_diagonal=unit)
        yield Rejected("f32[2, 3]", "f32[2, 1]", error=ShapeError, says="a must be square")
        yield Rejected("f32[2, 2]", "f32[3, 1]", error=ShapeError, says="b must be [2, 1], not f32[3, 1]")
        yield Rejected("f32[2, 2]", "f32[2]", error=ShapeError, says="b must have 2 or more axes")
        yield Rejected("f32[3, 2, 2]", "f32[4, 2, 1]", error=ShapeError, says="b must be [3, 2, 1], not f32[4, 2, 1]")
        yield Rejected("i64[2, 2]", "i64[2, 1]", error=DtypeError, says="not i64")

    def with_operation(self, instead: dict[Operation, Operation]) -> TriangularSolve:
        """The same triangle with another operation."""
        return TriangularSolve(self.lower, instead[self.operation], self.unit_diagonal)

    def conjugated(self, a: Value) -> Any:
        """Return the matrix for the adjoint system: (aᵀ)ᴴ is conj(a), for which LAPACK has no operation."""
        return rlx.conjugate(a) if self.operation == "transpose" and a.dtype.is_complex else a

    def read_part(self, x: Any) -> Any:
        """Return the elements of `x` at positions where `a` is read."""
        off = int(self.unit_diagonal)
        return rlx.tril(x, k=-off) if self.lower else rlx.triu(x, k=off)

    def applied(self, x: Any) -> Any:
        """op(x)."""
        if self.operation == "adjoint":
            return adjoint(x)
        return rlx.matrix_transpose(x) if self.operation == "transpose" else x


def triangular_solve(
    a: Any, b: Any, *, lower: bool = True, operation: Operation = "none", unit_diagonal: bool = False
) -> Any:
    """The x with op(a) x = b for a triangular `a`; see `TriangularSolve`. Leading dims broadcast; a `b` with one axis is one
    column.

    >>> import numpy as np
    >>> triangular_solve(np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([2.0, 9.0]))
    Array([1., 2.])
    """
    op = TriangularSolve(lower, operation, unit_diagonal)
    return of_systems(op, a, b)


OPS = (TriangularSolve,)

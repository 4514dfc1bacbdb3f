"""LU with partial pivoting, as LAPACK packs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import ZERO, Dim, Op, Rejected, Sample, TensorType, Value, define_op, op_function
from rlx_custom_ops.ops.matrices import adjoint, expect_square, free_leading_axes, stack
from rlx_custom_ops.ops.samples import samples_of, well_conditioned
from rlx_custom_ops.ops.triangular import triangular_solve

__rlx_library__ = True


@define_op(domain="linalg")
class Lu(Op):
    """a[permutation] = l u, with `l` lower triangular with a diagonal of ones and `u` upper triangular.

    Each step takes the row whose element, by the sum of the moduli of its parts, is the largest one left, the first of equal
    ones. A matrix that is singular has factors too, with a 0 on the diagonal of `u`; it has no derivative.

    `lu` has `u` in its upper triangle and `l` without its diagonal below; step i swapped rows i and pivots[i].

    Shapes:
        a: [..., n, n]    ->    lu: [..., n, n]    pivots: i32[..., n]    permutation: i32[..., n]

    Raises:
        SingularMatrixError: When a derivative runs, if an element of the diagonal of `u` is exactly 0.

    Source:
        The derivatives: Walter & Lehmann 2012, "Algorithmic differentiation of linear algebra functions", section 3.1.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        expect_square("a", a)
        rows = TensorType(rlx.i32, a.shape[:-1])
        return a, rows, rows

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lu, size = a.copy(), a.shape[-1]
        pivots, permutation = np.empty((2, *a.shape[:-1]), np.int32)
        for index in stack(a):
            matrix, order = lu[index], np.arange(size)
            for i in range(size):
                column = matrix[i:, i]
                pivot = i + int(np.argmax(np.abs(column.real) + np.abs(column.imag)))
                pivots[index][i] = pivot
                matrix[[i, pivot]], order[[i, pivot]] = matrix[[pivot, i]], order[[pivot, i]]
                if matrix[i, i] != 0:
                    matrix[i + 1 :, i] /= matrix[i, i]
                matrix[i + 1 :, i + 1 :] -= np.outer(matrix[i + 1 :, i], matrix[i, i + 1 :])
            permutation[index] = order
        return lu, pivots, permutation

    def vjp(self, g: Sequence[Any], a: Value, *, y: Sequence[Value]) -> tuple[Value, ...]:
        """p a has l⁻ᴴ (strictly lower(lᴴ g_l) + upper(g_u uᴴ)) u⁻ᴴ."""
        lu, _, permutation = y
        lower, upper = parts(lu)
        inner = rlx.tril(rlx.matmul(adjoint(lower), rlx.tril(g[0], k=-1)), k=-1) + rlx.triu(
            rlx.matmul(rlx.triu(g[0]), adjoint(upper))
        )
        left = triangular_solve(lu, inner, operation="adjoint", unit_diagonal=True)
        cotangent = adjoint(triangular_solve(lu, adjoint(left), lower=False))
        return (rows_of(cotangent, rlx.argsort(permutation, axis=-1)),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: Sequence[Value]) -> Any:
        """With w = l⁻¹ p ȧ u⁻¹: l̇ = l strictly lower(w) and u̇ = upper(w) u."""
        lu, _, permutation = y
        lower, upper = parts(lu)
        left = triangular_solve(lu, rows_of(t[0], permutation), unit_diagonal=True)
        w = adjoint(triangular_solve(lu, adjoint(left), lower=False, operation="adjoint"))
        return rlx.matmul(lower, rlx.tril(w, k=-1)) + rlx.matmul(rlx.triu(w), upper), ZERO, ZERO

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return a.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "3 3", "2 4 4", "1 1", "0 3 3", "0 0")
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


lu = op_function(Lu)


def parts(lu: Any) -> tuple[Any, Any]:
    """`l` and `u`, each by itself."""
    ones = np.eye(lu.shape[-1], dtype=lu.dtype.numpy)
    return rlx.tril(lu, k=-1) + ones, rlx.triu(lu)


def rows_of(x: Any, order: Any) -> Any:
    """The rows of matrices in an order of each."""
    return rlx.take_along_axis(x, rlx.broadcast_to(rlx.expand_dims(order, -1), x.shape), axis=-2)


OPS = (Lu,)

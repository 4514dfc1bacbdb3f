"""The Cholesky factor of a Hermitian positive-definite matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, define_op, matmul, op_function
from rlx_custom_ops.errors import no_minor
from rlx_custom_ops.ops.matrices import (
    adjoint,
    expect_square,
    finite,
    free_leading_axes,
    hermitian,
    hermitian_array,
    lower_half,
)
from rlx_custom_ops.ops.samples import positive_definite, samples_of
from rlx_custom_ops.ops.triangular import triangular_solve

__rlx_library__ = True


@define_op(domain="linalg")
class Cholesky(Op):
    """The lower triangular L with a positive diagonal and L Lᴴ = a.

    Only the Hermitian part (a + aᴴ) / 2 counts, so the gradient is Hermitian whatever the loss does. A NaN or an infinity in
    a matrix makes its factor NaN.

    Shapes:
        a: [..., n, n]    ->    l: [..., n, n]

    Raises:
        NotPositiveDefiniteError: When the program runs, if a leading minor is not positive.

    Source:
        The derivatives: Murray 2016, "Differentiation of the Cholesky decomposition", arXiv:1602.07527, section 3.1;
        Giles 2008, "An extended collection of matrix derivative results", section 3.2.
    """

    def infer(self, a: TensorType) -> TensorType:
        expect_square("a", a)
        return a

    def reference(self, a: np.ndarray) -> np.ndarray:
        a = hermitian_array(a)
        lower = np.empty_like(a)
        for index in finite(a, lower):
            try:
                lower[index] = np.linalg.cholesky(a[index])
            except np.linalg.LinAlgError:
                raise no_minor("cholesky", a.shape[-1])(index, first_bad_minor(a[index])) from None
        return lower

    def vjp(self, g: Value, a: Value, *, y: Value) -> tuple[Value, ...]:
        # With Φ = lower_half:  herm(L⁻ᴴ Φ(Lᴴ g) L⁻¹).
        inner = lower_half(matmul(adjoint(y), g))
        left = triangular_solve(y, inner, operation="adjoint")
        return (hermitian(triangular_solve(y, adjoint(left), operation="adjoint")),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: Value) -> Value:
        # L Φ(L⁻¹ ȧ L⁻ᴴ), with the Hermitian part of ȧ.
        left = triangular_solve(y, hermitian(t[0]))
        return matmul(y, lower_half(triangular_solve(y, adjoint(left))))

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return a.size * a.shape[-1]  # n³ / 3 multiplications and as many additions, rounded up

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(positive_definite, "3 3", "2 3 3", "2 1 2 2", "1 1", "0 3 3", "0 0")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square, not f32[2, 3]")
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("i64[2, 2]", error=DtypeError, says="one of f32 f64 c64 c128, not i64")
        yield Rejected("f16[2, 2]", error=DtypeError, says="not f16")


cholesky = op_function(Cholesky)


def first_bad_minor(a: np.ndarray) -> int:
    """The order of the first leading minor of one matrix that is not positive definite."""
    for order in range(1, a.shape[-1]):
        try:
            np.linalg.cholesky(a[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return a.shape[-1]


OPS = (Cholesky,)

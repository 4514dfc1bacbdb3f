"""The reduced QR factorisation, made unique by a positive diagonal of R."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import ShapeError
from rlx_core.ops import (
    Dim,
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    concat,
    define_op,
    matmul,
    op_function,
)
from rlx_custom_ops.ops.matrices import (
    adjoint,
    expect_matrix,
    finite,
    free_leading_axes,
    least_dim,
    upper_half,
)
from rlx_custom_ops.ops.samples import samples_of, well_conditioned
from rlx_custom_ops.ops.triangular import triangular_solve

__rlx_library__ = True


@define_op(domain="linalg")
class Qr(Op):
    """a = q r with orthonormal columns in `q`, and `r` upper triangular with a diagonal that is real and not negative.

    LAPACK leaves the signs open; with these the factors of a matrix whose first k columns are independent are unique, and
    the same from every kernel. Where those columns are dependent there is no derivative, and asking for it raises. A NaN or
    an infinity in a matrix makes both factors NaN.

    Shapes:
        a: [..., m, n]    ->    q: [..., m, k]    r: [..., k, n], with k = min(m, n)

    Raises:
        SingularMatrixError: When a derivative runs, if the first k columns are dependent to the last bit.

    Source:
        The derivatives: Walter & Lehmann 2012, "Algorithmic differentiation of linear algebra functions", sections 3.2;
        Seeger et al. 2017, "Auto-differentiating linear algebra", arXiv:1710.08717. For n > m, a = [a₁ a₂] and a₁ = q r₁.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType]:
        expect_matrix("a", a)
        *leading, m, n = a.shape
        k = least_dim(a)
        return a.with_shape((*leading, m, k)), a.with_shape((*leading, k, n))

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        *leading, m, n = a.shape
        q, r = np.empty((*leading, m, min(m, n)), a.dtype), np.empty((*leading, min(m, n), n), a.dtype)
        for index in finite(a, q, r):
            q[index], r[index] = with_positive_diagonal(*np.linalg.qr(a[index]))
        return q, r

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value]) -> tuple[Value, ...]:
        q, r = y
        g_q, g_r = g
        size = q.shape[-1]
        if a.shape[-1] == size:
            return (pulled(q, r, g_q, g_r),)
        # r₂ = qᴴ a₂ is linear in q and a₂; the rest is the square case.
        a_2, g_r2 = a[..., size:], g_r[..., size:]
        g_1 = pulled(q, r[..., :size], g_q + matmul(a_2, adjoint(g_r2)), g_r[..., :size])
        return (concat([g_1, matmul(q, g_r2)], axis=-1),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value]) -> Any:
        q, r = y
        size = q.shape[-1]
        if a.shape[-1] == size:
            return pushed(q, r, t[0])
        t_q, t_r1 = pushed(q, r[..., :size], t[0][..., :size])
        t_r2 = matmul(adjoint(t_q), a[..., size:]) + matmul(adjoint(q), t[0][..., size:])
        return t_q, concat([t_r1, t_r2], axis=-1)

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 4 * a.size * least_dim(a)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "4 3", "3 3", "2 4 2", "1 1", "0 3 3", "3 0")
        for dims in ("2 3", "2 2 4"):
            yield from samples_of(well_conditioned, dims)
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[m, 3]", error=ShapeError, says="which one of m and 3 is smaller")


qr = op_function(Qr)


def pulled(q: Any, r: Any, g_q: Any, g_r: Any) -> Any:
    """(g_q + q (s + sᴴ)) r⁻ᴴ with s = upper_half(g_r rᴴ - qᴴ g_q), for a square `r`."""
    s = upper_half(matmul(g_r, adjoint(r)) - matmul(adjoint(q), g_q))
    total = g_q + matmul(q, s + adjoint(s))
    return adjoint(triangular_solve(r, adjoint(total), lower=False))


def pushed(q: Any, r: Any, t: Any) -> tuple[Any, Any]:
    """With w = ȧ r⁻¹ and u = upper_half(qᴴ w + (qᴴ w)ᴴ): q̇ = w - q u and ṙ = u r, for a square `r`."""
    w = adjoint(triangular_solve(r, adjoint(t), lower=False, operation="adjoint"))
    c = matmul(adjoint(q), w)
    u = upper_half(c + adjoint(c))
    return w - matmul(q, u), matmul(u, r)


def with_positive_diagonal(q: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same product with the phases of R's diagonal moved into Q."""
    diagonal = np.diagonal(r)
    modulus = np.abs(diagonal)
    phase = np.where(modulus == 0, 1, diagonal / np.where(modulus == 0, 1, modulus)).astype(r.dtype)
    r = phase.conj()[:, None] * r
    np.fill_diagonal(r, modulus)
    return q * phase, r


OPS = (Qr,)

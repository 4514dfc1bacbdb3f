"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, define_op, op_function
from rlx_custom_ops.errors import no_convergence
from rlx_custom_ops.ops import phases
from rlx_custom_ops.ops.matrices import (
    EPSILON,
    adjoint,
    expect_square,
    finite,
    free_leading_axes,
    hermitian,
    hermitian_array,
    real_part,
    real_type,
    rows,
)
from rlx_custom_ops.ops.samples import positive_definite, samples_of

__rlx_library__ = True


@define_op(domain="linalg")
class Eigh(Op):
    """a v = v diag(w) with ascending real `w` and orthonormal columns in `v`.

    Only the Hermitian part (a + aᴴ) / 2 counts. The phase of each eigenvector is fixed, see `phases.py`. A NaN or an
    infinity in a matrix makes all its results NaN.

    Degenerate eigenvalues: within an eigenspace `v` is any orthonormal basis, and has no derivative. Its rules leave out the
    terms of pairs of eigenvalues that are equal to rounding (closer than 4ε Σ|w|). That is finite, and exact for every loss of
    the complete eigenspace: of its projection, of the sum of its eigenvalues. For a loss that combines each vector with its
    eigenvalue, as in v diag(f(w)) vᴴ, the derivative then omits the pair's own term, f'(w).

    Shapes:
        a: [..., n, n]    ->    w: real [..., n]    v: [..., n, n]

    Raises:
        NoConvergenceError: When the program runs, if LAPACK gives up.

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 3.1, with the phases
        of complex vectors added; Seeger et al. 2017, "Auto-differentiating linear algebra", arXiv:1710.08717.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType]:
        expect_square("a", a)
        return real_type(a, *a.shape[:-1]), a

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a = hermitian_array(a)
        w, v = np.empty(a.shape[:-1], a.real.dtype), np.empty_like(a)
        for index in finite(a, w, v):
            try:
                w[index], vectors = np.linalg.eigh(a[index])
            except np.linalg.LinAlgError:
                raise no_convergence("eigh", index) from None
            v[index] = vectors * phases.phases(vectors)
        return w, v

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value]) -> tuple[Value, ...]:
        # herm(v (f ∘ (vᴴ g_v) + diag(g_w)) vᴴ) with f = 1 / (w_j - w_i).
        w, v = y
        g_w, g_v = g
        diagonal = diagonal_of(0.5 * g_w if v.dtype.is_complex else g_w, v)
        if v.dtype.is_complex:
            g_v = g_v + phases.pulled(v, phases.twist(v, g_v))
        inner = diagonal + inverse_gaps(w) * rlx.matmul(adjoint(v), g_v)
        return (hermitian(rlx.matmul(rlx.matmul(v, inner), adjoint(v))),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value]) -> Any:
        w, v = y
        c = rlx.matmul(rlx.matmul(adjoint(v), hermitian(t[0])), v)
        t_v = rlx.matmul(v, inverse_gaps(w) * c)
        if v.dtype.is_complex:
            t_v = t_v + phases.turned(v, phases.pushed(v, t_v))
        return real_part(rlx.diag(c)), t_v

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 9 * a.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(positive_definite, "3 3", "2 3 3", "2 1 2 2", "1 1", "0 3 3")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


eigh = op_function(Eigh)


def inverse_gaps(w: Any) -> Any:
    """1 / (w_j - w_i), and 0 for the diagonal and where the two are equal to rounding."""
    gaps = rlx.expand_dims(w, -2) - rlx.expand_dims(w, -1)
    tolerance = 4 * EPSILON[w.dtype] * rlx.expand_dims(rlx.sum(rlx.abs(w), axis=-1), (-1, -2))
    is_equal = rlx.abs(gaps) <= tolerance
    return rlx.where(is_equal, 0.0, 1.0 / rlx.where(is_equal, 1.0, gaps))


def diagonal_of(x: Any, like: Any) -> Any:
    """Vectors as diagonal matrices, in the dtype of `like`."""
    identity = rlx.broadcast_to(rlx.eye(like.shape[-1], dtype=like.dtype), (*x.shape, x.shape[-1]))
    return identity * rows(x)


OPS = (Eigh,)

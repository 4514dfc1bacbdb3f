"""The polar decomposition: the nearest matrix with orthonormal columns, and a stretch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ops import (
    Dim,
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    define_op,
    expand_dims,
    matmul,
    op_function,
)
from rlx_custom_ops.ops.matrices import (
    adjoint,
    expect_matrix,
    free_leading_axes,
    hermitian,
    least_dim,
    rows,
)
from rlx_custom_ops.ops.samples import samples_of, well_conditioned
from rlx_custom_ops.ops.svd import inverse_sums, inverse_values, outside, svd

__rlx_library__ = True


@define_op(domain="linalg")
class Polar(Op):
    """a = u p with orthonormal columns in `u` and a Hermitian `p` without negative eigenvalues.

    Of all matrices with orthonormal columns `u` is the closest to `a`. Equal singular values do no harm to the derivatives,
    in which only sums of singular values are divided by; where `a` has not full rank, `u` has no derivative, and the terms
    of a singular value 0 are left out.

    Shapes:
        a: [..., m, n] with m >= n    ->    u: [..., m, n]    p: [..., n, n]

    Raises:
        NoConvergenceError: When the program runs, if LAPACK gives up.

    Source:
        Higham 2008, "Functions of Matrices", chapter 8, for the decomposition by singular values. The derivatives solve the
        derivatives of uᴴu = 1, p = pᴴ and a = u p in the basis of the singular vectors, where they are element-wise.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType]:
        expect_matrix("a", a)
        n = a.shape[-1]
        if least_dim(a) != n:
            raise ShapeError(f"a must have at least as many rows as columns, not {a}", hint='polar(a, side="left")')
        return a, a.with_shape((*a.shape[:-2], n, n))

    def decompose(self, a: Value) -> tuple[Value, Value]:
        u, s, vh = svd(a)
        return matmul(u, vh), matmul(adjoint(vh) * rows(s), vh)

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value]) -> tuple[Value, ...]:
        # With a = w diag(s) vᴴ, f = 1 / (s_i + s_j), k_u = wᴴ g_u v and k_p = vᴴ g_p v:
        # w (f ∘ (k_u - k_uᴴ) + diag(s) (f ∘ (k_p + k_pᴴ))) vᴴ, and what lies outside of the space of w.
        w, s, vh = svd(a)
        v, f = adjoint(vh), inverse_sums(s)
        g_v = matmul(g[0], v)
        k_u, k_p = matmul(adjoint(w), g_v), matmul(matmul(vh, g[1]), v)
        total = matmul(w, f * (k_u - adjoint(k_u)) + expand_dims(s, -1) * (f * (2.0 * hermitian(k_p))))
        if a.shape[-2] != a.shape[-1]:
            total = total + outside(w, k_u, g_v) * rows(inverse_values(s))
        return (matmul(total, vh),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value]) -> Any:
        w, s, vh = svd(a)
        f, moved = inverse_sums(s), matmul(t[0], adjoint(vh))
        k = matmul(adjoint(w), moved)
        stretched = expand_dims(s, -1) * k
        t_u = matmul(w, f * (k - adjoint(k)))
        if a.shape[-2] != a.shape[-1]:
            t_u = t_u + outside(w, k, moved) * rows(inverse_values(s))
        return matmul(t_u, vh), matmul(matmul(adjoint(vh), f * (2.0 * hermitian(stretched))), vh)

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 18 * a.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "4 3", "3 3", "2 4 2", "2 1 2 2", "1 1", "0 3 3")
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[2, 3]", error=ShapeError, says="at least as many rows as columns")


_polar = op_function(Polar)


def polar(a: Any, *, side: Literal["right", "left"] = "right") -> tuple[Any, Any]:
    """The unitary factor u and the stretch p of matrices, as `scipy.linalg.polar` gives them: a = u p, or a = p u for the
    side "left", which takes matrices with more columns than rows.

    >>> u, p = polar(np.array([[0.0, -2.0], [3.0, 0.0]]))
    >>> np.round(u, 12) + 0.0, np.round(p, 12) + 0.0
    (array([[ 0., -1.],
           [ 1.,  0.]]), array([[3., 0.],
           [0., 2.]]))
    """
    if side not in ("right", "left"):
        raise ConfigError(f"polar: side is 'right' or 'left', not {side!r}")
    if side == "right":
        u, p = _polar(a)
        return u, p
    u, p = _polar(turned(a))
    return turned(u), p


def turned(x: Any) -> Any:
    """The adjoint of an array or a value."""
    return adjoint(x) if isinstance(x, Value) else np.asarray(x).swapaxes(-1, -2).conj()


OPS = (Polar,)

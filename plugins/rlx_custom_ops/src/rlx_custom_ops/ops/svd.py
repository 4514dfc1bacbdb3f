"""The reduced singular value decomposition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, define_op, op_function
from rlx_custom_ops.errors import no_convergence
from rlx_custom_ops.ops import phases
from rlx_custom_ops.ops.eigh import diagonal_of, inverse_gaps
from rlx_custom_ops.ops.matrices import (
    EPSILON,
    adjoint,
    expect_matrix,
    finite,
    free_leading_axes,
    hermitian,
    least_dim,
    real_part,
    real_type,
    rows,
)
from rlx_custom_ops.ops.samples import samples_of, well_conditioned

__rlx_library__ = True


@define_op(domain="linalg")
class Svd(Op):
    """a = u diag(s) vh with orthonormal columns in `u` and rows in `vh`, and `s` descending and not negative.

    The phase of each column of `u` is fixed, see `phases.py`; the row of `vh` turns along. A NaN or an infinity in a matrix
    makes all its results NaN.

    Degenerate singular values: vectors of equal singular values are any orthonormal basis, and have no derivative; nor have
    vectors of a singular value 0, whose own derivative is taken as that of the branch u₀ᴴ a v₀. The rules leave out the terms
    of differences and sums that are 0 to rounding (below 4ε Σs): that is finite, and exact for every loss of the complete
    space, as for `Eigh`. `Pinv` and `Lstsq` have dedicated rules without differences.

    Shapes:
        a: [..., m, n]    ->    u: [..., m, k]    s: real [..., k]    vh: [..., k, n], with k = min(m, n)

    Raises:
        NoConvergenceError: When the program runs, if LAPACK gives up.

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 3.3; Seeger et al. 2017,
        arXiv:1710.08717; Wan & Zhang 2019, "Automatic differentiation for complex valued SVD", arXiv:1909.02659. The
        quotients 1/(s_j² - s_i²) are split into 1/(s_j - s_i) and 1/(s_j + s_i), which lose less to cancellation.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        expect_matrix("a", a)
        *leading, m, n = a.shape
        k = least_dim(a)
        return a.with_shape((*leading, m, k)), real_type(a, *leading, k), a.with_shape((*leading, k, n))

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, s, vh = empty_factors(a)
        for index in finite(a, u, s, vh):
            try:
                factors = np.linalg.svd(a[index], full_matrices=False)
            except np.linalg.LinAlgError:
                raise no_convergence("svd", index) from None
            u[index], s[index], vh[index] = with_fixed_phases(*factors)
        return u, s, vh

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value, Value]) -> Any:
        # u (herm(f₋ ∘ (k_u + k_v)) + skew(f₊ ∘ (k_u - k_v)) + diag(g_s)) vᴴ, where k_u = uᴴ g_u and k_v = vᴴ g_v, and what
        # lies outside of the spaces of u and v.
        u, s, vh = y
        v = adjoint(vh)
        g_u, g_s, g_v = g[0], g[1], adjoint(g[2])
        if u.dtype.is_complex:
            g_u = g_u + phases.pulled(u, phases.twist(u, g_u) + phases.twist(v, g_v))
        k_u, k_v = rlx.matmul(adjoint(u), g_u), rlx.matmul(adjoint(v), g_v)
        skew = inverse_sums(s) * (k_u - k_v)
        inner = hermitian(inverse_gaps(s) * (k_u + k_v)) + 0.5 * (skew - adjoint(skew))
        inner = inner + diagonal_of(0.5 * g_s if u.dtype.is_complex else g_s, u)
        total = rlx.matmul(u, inner)
        reciprocal = rows(inverse_values(s))
        if u.shape[-2] != u.shape[-1]:
            total = total + outside(u, k_u, g_u) * reciprocal
        da = rlx.matmul(total, vh)
        if v.shape[-2] != v.shape[-1]:
            da = da + rlx.matmul(u * reciprocal, adjoint(outside(v, k_v, g_v)))
        return (da,)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value, Value]) -> Any:
        u, s, vh = y
        v = adjoint(vh)
        moved_v, moved_u = rlx.matmul(t[0], v), rlx.matmul(adjoint(t[0]), u)
        p = rlx.matmul(adjoint(u), moved_v)
        both = inverse_gaps(s) * hermitian(p)
        antisymmetric = inverse_sums(s) * (0.5 * (p - adjoint(p)))
        t_u, t_v = rlx.matmul(u, both + antisymmetric), rlx.matmul(v, both - antisymmetric)
        reciprocal = rows(inverse_values(s))
        if u.shape[-2] != u.shape[-1]:
            t_u = t_u + outside(u, p, moved_v) * reciprocal
        if v.shape[-2] != v.shape[-1]:
            t_v = t_v + outside(v, adjoint(p), moved_u) * reciprocal
        if u.dtype.is_complex:
            rates = phases.pushed(u, t_u)
            t_u, t_v = t_u + phases.turned(u, rates), t_v + phases.turned(v, rates)
        return t_u, real_part(rlx.diag(p)), adjoint(t_v)

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 14 * a.size * least_dim(a)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "4 3", "3 3", "2 4 2", "1 1", "0 3 3")
        for dims in ("2 3", "2 2 4"):
            yield from samples_of(well_conditioned, dims)
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[m, 3]", error=ShapeError, says="which one of m and 3 is smaller")


svd = op_function(Svd)


def outside(basis: Any, coefficients: Any, x: Any) -> Any:
    """The part of `x` orthogonal to `basis`, given the coefficients of the rest."""
    return x - rlx.matmul(basis, coefficients)


def inverse_sums(s: Any) -> Any:
    """1 / (s_j + s_i), and 0 where both are 0 to rounding."""
    return guarded_reciprocal(rlx.expand_dims(s, -2) + rlx.expand_dims(s, -1), rlx.expand_dims(tolerance(s), -1))


def inverse_values(s: Any) -> Any:
    """1 / s_j, and 0 where it is 0 to rounding."""
    return guarded_reciprocal(s, tolerance(s))


def tolerance(s: Any) -> Any:
    return 4 * EPSILON[s.dtype] * rlx.sum(s, axis=-1, keepdims=True)


def guarded_reciprocal(x: Any, least: Any) -> Any:
    """1 / x, and 0 for x up to `least`; the operand is guarded, so that derivatives are finite too."""
    is_zero = x <= least
    return rlx.where(is_zero, 0.0, 1.0 / rlx.where(is_zero, 1.0, x))


def empty_factors(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return uninitialised arrays for the factors of `a`."""
    *leading, m, n = a.shape
    k = min(m, n)
    shapes = ((*leading, m, k), (*leading, k), (*leading, k, n))
    kinds = (a.dtype, a.real.dtype, a.dtype)
    u, s, vh = (np.empty(shape, kind) for shape, kind in zip(shapes, kinds, strict=True))
    return u, s, vh


def with_fixed_phases(u: np.ndarray, s: np.ndarray, vh: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return factors of the same product, with the phases of `phases.py`."""
    factor = phases.phases(u)
    return u * factor, s, factor.conj()[:, None] * vh


OPS = (Svd,)

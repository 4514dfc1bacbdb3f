"""Eigenvalues and eigenvectors of any square matrices."""

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
from rlx_custom_ops.ops.matrices import adjoint, expect_square, finite, free_leading_axes, real_type, rows
from rlx_custom_ops.ops.samples import anything, samples_of
from rlx_custom_ops.ops.solve import solve

__rlx_library__ = True


@define_op(domain="linalg")
class Eig(Op):
    """a v = v diag(w) for any square `a`: complex `w` and `v`, also of a real `a`.

    The eigenvalues ascend by their real parts, those of equal real parts by their imaginary parts. The columns of `v` have
    norm 1 and a fixed phase, see `phases.py`. A NaN or an infinity in a matrix makes all its results NaN.

    Derivatives are those of a matrix with n distinct eigenvalues: `v` must be invertible, and the terms of pairs of eigenvalues
    that are equal to rounding are left out, as in `eigh`, which is the op for Hermitian matrices: faster, and its `v` unitary.

    Shapes:
        a: [..., n, n]    ->    w: complex [..., n]    v: complex [..., n, n]

    Raises:
        NoConvergenceError: When the program runs, if LAPACK gives up.

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 3.1, with the norms and the
        phases of the vectors added.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType]:
        expect_square("a", a)
        vectors = a.with_dtype(rlx.c64 if real_type(a).dtype.itemsize == 4 else rlx.c128)
        return vectors.with_shape(a.shape[:-1]), vectors

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = np.empty(a.shape[:-1], np.result_type(a.dtype, np.complex64))
        v = np.empty(a.shape, w.dtype)
        for index in finite(a, w, v):
            try:
                eigen = np.linalg.eig(a[index])
            except np.linalg.LinAlgError:
                raise no_convergence("eig", index) from None
            w[index], v[index] = in_order(*eigen)
        return w, v

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value]) -> Any:
        # v⁻ᴴ (conj(f) ∘ (vᴴ g_v) + diag(g_w)) vᴴ with f = 1 / (w_j - w_i).
        w, v = y
        diagonal = diagonal_of(g[0], v)
        g_v = across(v, g[1] + phases.pulled(v, phases.twist(v, g[1])))
        inner = diagonal + rlx.conjugate(inverse_gaps(w)) * rlx.matmul(adjoint(v), g_v)
        g_a = solve(adjoint(v), rlx.matmul(inner, adjoint(v)))
        return (g_a if a.dtype.is_complex else 2 * rlx.real(g_a),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value]) -> Any:
        w, v = y
        c = solve(v, rlx.matmul(rlx.astype(t[0], v.dtype), v))
        t_v = across(v, rlx.matmul(v, inverse_gaps(w) * c))
        return rlx.diag(c), t_v + phases.turned(v, phases.pushed(v, t_v))

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 25 * a.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(spread, "3 3", "2 3 3", "2 1 2 2", "1 1", "0 3 3")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


eig = op_function(Eig)


def in_order(w: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of one matrix in the order of the op, and their vectors with norm 1 and its phases."""
    order = np.lexsort((w.imag, w.real))
    v = v[:, order]
    return w[order], v * phases.phases(v)


def across(v: Any, x: Any) -> Any:
    """`x` without what only stretches the columns of `v`, whose norms are 1: how they change as they are divided by their norms.

    It is its own transpose.
    """
    return x - v * rows(rlx.astype(rlx.real(rlx.sum(rlx.conjugate(v) * x, axis=-2)), v.dtype))


def spread(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Return square matrices with separated eigenvalues: real ones with a complex pair if large enough; complex ones with
    distinct real parts, because otherwise rounding would determine their order.
    """
    n = shape[-1]
    blocks = np.diag(2.0 * np.arange(n) + (0.5j if is_complex else 0))
    if n >= 2 and not is_complex:
        blocks[:2, :2] = [[-3.0, 1.0], [-1.0, -3.0]]
    basis = np.eye(n) + 0.2 * anything(rng, shape, is_complex)
    return np.asarray(basis @ blocks @ np.linalg.inv(basis))


OPS = (Eig,)

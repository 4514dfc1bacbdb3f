"""One sparse system after the other, by SciPy on the host, in float64 or complex128 whatever the operands are in."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from rlx_core.errors import Fact
from rlx_custom_ops.errors import (
    LinearAlgebraError,
    NotConvergedError,
    NotPositiveDefiniteError,
    SingularMatrixError,
    which,
)

HERMITIAN_TOLERANCE: Final = 1e-3
"""From which part of the largest element on a difference from the adjoint is no rounding any more."""

ITERATIONS: Final[dict[str, Any]] = {"cg": spl.cg, "bicgstab": spl.bicgstab, "gmres": spl.gmres}


def matrix(op: Any, data: np.ndarray, rows: np.ndarray, columns: np.ndarray, n: int, index: tuple[int, ...]) -> Any:
    """Return one matrix, or its Hermitian part if the method requires that.

    Raises:
        LinearAlgebraError: The method requires a Hermitian matrix, and it is not.
    """
    a = elements(data, rows, columns, (n, n))
    if op.method not in ("cholesky", "cg"):
        return a
    mirrored = a.conj().T.tocsr()
    difference, largest = abs(a - mirrored).max(), abs(a).max()
    if difference > HERMITIAN_TOLERANCE * largest:
        raise LinearAlgebraError(
            f"{op.name}: {which(index)} is not Hermitian, as method {op.method!r} needs: an element and its mirror differ "
            f"by {difference:.3g}, where the largest element is {largest:.3g}",
            hint="methods 'lu', 'bicgstab' and 'gmres' take any square matrix",
        )
    return (a + mirrored) * 0.5


def elements(data: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    """The matrix with these elements; those of one place are added up."""
    return sp.csr_array(sp.coo_array((data, (rows, columns)), shape=shape))


def least_squares(op: Any, a: Any, b: np.ndarray, index: tuple[int, ...], rtol: float) -> np.ndarray:
    """The shortest x of least |b - a x|, for every column of b.

    Raises:
        NotConvergedError: The iteration did not converge within the maximum number of iterations.
    """
    if not (np.isfinite(a.data).all() and np.isfinite(b).all()):
        return np.full((a.shape[1], b.shape[1]), np.nan, b.dtype)
    x = np.empty((a.shape[1], b.shape[1]), b.dtype)
    max_iterations = 4 * sum(a.shape) if op.maxiter is None else op.maxiter
    for column in range(b.shape[1]):
        right = np.ascontiguousarray(b[:, column])
        x[:, column], status = spl.lsqr(a, right, atol=rtol, btol=rtol, conlim=0, iter_lim=max_iterations)[:2]
        residual = right - a @ x[:, column]
        gradient = float(np.linalg.norm(a.conj().T @ residual))
        if status == 7:  # of all its reasons to stop the one that is no solution
            raise NotConvergedError(
                f"{op.name}: lsqr for {which(index)} did not converge: after {max_iterations} iterations "
                f"|aᴴ (b - a x)| of column {column} is {gradient:.3g}",
                Fact("batch index", list(index)),
                hint="more iterations (maxiter), a larger rtol, or damp",
                residual=gradient,
            )
    return x


def solved(
    op: Any, a: Any, b: np.ndarray, index: tuple[int, ...], rtol: float, start: np.ndarray | None = None
) -> np.ndarray:
    """The x with a x = b for one matrix and all columns of b; an iteration begins at `start`.

    Raises:
        SingularMatrixError, NotPositiveDefiniteError, NotConvergedError: No solution exists, or the iteration did not converge.
    """
    if not all(np.isfinite(x).all() for x in (a.data, b, 0 if start is None else start)):
        return np.full_like(b, np.nan)
    if op.method in ITERATIONS:
        return iterated(op, a, b, index, rtol, start)
    return factor(op, a, index).solve(b)


def factor(op: Any, a: Any, index: tuple[int, ...]) -> Any:
    """SuperLU's factors; with `cholesky` those of a Hermitian positive definite matrix, without exchanging rows."""
    is_cholesky = op.method == "cholesky"
    settings: dict[str, Any] = (
        {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        if is_cholesky
        else {}
    )
    try:
        factors = spl.splu(a.tocsc(), **settings)
    except RuntimeError as error:
        raise not_factored(op, index, error) from None
    if is_cholesky and not (np.array_equal(factors.perm_r, factors.perm_c) and (factors.U.diagonal().real > 0).all()):
        raise NotPositiveDefiniteError(
            f"{op.name}: {which(index)} is not positive definite: a pivot of its factors is not positive"
        )
    return factors


def not_factored(op: Any, index: tuple[int, ...], error: RuntimeError) -> LinearAlgebraError:
    """Return the error for SuperLU's `RuntimeError`, which it raises for pivots of 0."""
    if op.method == "cholesky":
        return NotPositiveDefiniteError(f"{op.name}: {which(index)} is not positive definite: a pivot is exactly 0")
    return SingularMatrixError(f"{op.name}: {which(index)} is singular: a pivot is exactly 0 (SuperLU: {error})")


def preconditioner(op: Any, a: Any, index: tuple[int, ...]) -> Any:
    """An approximation of the inverse, or `None`."""
    if op.preconditioner == "none":
        return None
    if op.preconditioner == "jacobi":
        diagonal = a.diagonal()
        zeros = np.flatnonzero(diagonal == 0)
        if zeros.size:
            raise SingularMatrixError(
                f"{op.name}: the preconditioner 'jacobi' divides by the diagonal, and element {zeros[0]} of that of "
                f"{which(index)} is 0"
            )
        return spl.LinearOperator(a.shape, dtype=a.dtype, matvec=lambda x: x.reshape(-1) / diagonal)
    try:
        return spl.LinearOperator(a.shape, dtype=a.dtype, matvec=spl.spilu(a.tocsc()).solve)
    except RuntimeError as error:
        raise not_factored(op, index, error) from None


def iterated(
    op: Any, a: Any, b: np.ndarray, index: tuple[int, ...], rtol: float, start: np.ndarray | None
) -> np.ndarray:
    """Every column by itself, from its column of `start`, or from 0."""
    x = np.empty_like(b)
    approximate_inverse = preconditioner(op, a, index)
    settings = {"restart": op.restart} if op.method == "gmres" else {}
    for column in range(b.shape[1]):
        right = np.ascontiguousarray(b[:, column])
        x[:, column], status = ITERATIONS[op.method](
            a,
            right,
            x0=None if start is None else np.ascontiguousarray(start[:, column]),
            rtol=rtol,
            atol=op.atol,
            maxiter=op.maxiter,
            M=approximate_inverse,
            **settings,
        )
        residual = float(np.linalg.norm(right - a @ x[:, column]))
        bound = max(rtol * float(np.linalg.norm(right)), op.atol)
        # An iteration measures the residual that it carries along, which drifts from the true one by rounding.
        rounding = 64 * np.finfo(float).eps * float(spl.norm(a)) * float(np.linalg.norm(x[:, column]))
        if status != 0 or not residual <= max(2 * bound, rounding):
            raise not_converged(op, index, column, residual, bound, status)
    return x


def not_converged(
    op: Any, index: tuple[int, ...], column: int, residual: float, bound: float, status: int
) -> NotConvergedError:
    """The error for a residual that stayed above its bound."""
    how = f"broke down (SciPy's status {status})" if status < 0 else "did not converge"
    return NotConvergedError(
        f"{op.name}: {op.method} for {which(index)} {how}: the residual of column {column} is {residual:.3g}, "
        f"and should be at most {bound:.3g}",
        Fact("batch index", list(index)),
        hint="another method or preconditioner, more iterations (maxiter), or a larger rtol",
        residual=residual,
    )

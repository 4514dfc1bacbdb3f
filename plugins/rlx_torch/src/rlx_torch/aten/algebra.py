"""Decompositions of matrices and systems of equations."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core import linalg
from rlx_core.ir.dims import holds
from rlx_torch.aten.table import aten, rows


def no_fault(x: Any) -> Any:
    """Return LAPACK's error code: 0, because errors are raised at run time here."""
    return rlx.zeros(x.shape[:-2], dtype=rlx.i32)


def _solve(a: Any, b: Any, left: bool = True) -> Any:
    if not left:
        return rlx.matrix_transpose(_solve(rlx.matrix_transpose(a), rlx.matrix_transpose(b)))
    return linalg.solve(a, b)


@aten("_linalg_check_errors")
def check_errors(info: Any, name: str, *, is_matrix: bool) -> None:
    """Do nothing: failures are errors at run time."""


@aten("cholesky_solve")
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """x of `a·x = b` from the Cholesky factor of `a`: two triangular systems."""
    part = rlx.triu(factor) if upper else rlx.tril(factor)
    transposed = rlx.conj(rlx.matrix_transpose(part))
    first, second = (transposed, part) if upper else (part, transposed)
    return _solve(second, _solve(first, b))


@aten("linalg_svd")
def svd(x: Any, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    return tuple(linalg.svd(x, full_matrices=full_matrices))


@aten("_linalg_svd")
def svd_parts(x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if not compute_uv:
        empty = rlx.zeros((0,), dtype=x.dtype)
        return empty, linalg.svdvals(x), empty
    return svd(x, full_matrices)


@aten("linalg_eigh", "_linalg_eigh")
def eigh(x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    """Eigenvalues and eigenvectors of the Hermitian matrix given by a triangle of `x`."""
    part = rlx.tril(x) if UPLO == "L" else rlx.triu(x)
    strict = rlx.tril(x, k=-1) if UPLO == "L" else rlx.triu(x, k=1)
    full = part + rlx.conj(rlx.matrix_transpose(strict))
    if not compute_v:
        return linalg.eigvalsh(full), rlx.zeros((0,), dtype=x.dtype)
    return tuple(linalg.eigh(full))


@aten("linalg_qr")
def qr(x: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return rlx.zeros((0,), dtype=x.dtype), linalg.qr(x).R
    return tuple(linalg.qr(x, mode=mode))  # type: ignore[arg-type]


@aten("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    return _solve(_triangle(a, upper, unitriangular), b, left)


def _triangle(a: Any, upper: bool, unitriangular: bool) -> Any:
    if unitriangular:
        return (rlx.triu(a, k=1) if upper else rlx.tril(a, k=-1)) + rlx.eye(a.shape[-1], dtype=a.dtype)
    return rlx.triu(a) if upper else rlx.tril(a)


@aten("triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    part = _triangle(a, upper, unitriangular)
    return _solve(rlx.matrix_transpose(part) if transpose else part, b), a


rows(
    {
        "linalg_det det": linalg.det,
        "linalg_inv inverse": linalg.inv,
        "linalg_cholesky": lambda x, upper=False: linalg.cholesky(x, upper=upper),
        "cholesky": lambda x, upper=False: linalg.cholesky(x, upper=upper),
        "linalg_svdvals": linalg.svdvals,
        "linalg_eig": lambda x: tuple(linalg.eig(x)),
        "linalg_eigvals _linalg_eigvals": linalg.eigvals,
        "linalg_eigvalsh": lambda x, UPLO="L": eigh(x, UPLO)[0],
        "linalg_slogdet slogdet": lambda x: tuple(linalg.slogdet(x)),
        "linalg_matrix_power matrix_power": linalg.matrix_power,
        "trace": lambda x: linalg.trace(x, dtype=rlx.i64 if x.dtype.kind in ("int", "uint", "bool") else x.dtype),
        "linalg_cross": lambda a, b, dim=-1: linalg.cross(a, b, axis=dim),
        "cholesky_inverse": lambda factor, upper=False: cholesky_solve(
            rlx.eye(factor.shape[-1], dtype=factor.dtype), factor, upper
        ),
        "linalg_cholesky_ex": lambda x, *, upper=False, check_errors=False: (
            linalg.cholesky(x, upper=upper),
            no_fault(x),
        ),
        "linalg_inv_ex": lambda x, *, check_errors=False: (linalg.inv(x), no_fault(x)),
    }
)


@aten("linalg_solve")
def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    if b.ndim == 1 or (a.ndim - 1 == b.ndim and all(holds("==", m, n) for m, n in zip(a.shape, b.shape, strict=False))):
        return rlx.squeeze(_solve(a, rlx.expand_dims(b, axis=-1), left), axis=-1)
    return _solve(a, b, left)

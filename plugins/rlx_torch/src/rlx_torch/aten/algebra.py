"""Decompositions of matrices and systems of equations; LU factors as torch keeps them: packed in one matrix, and pivots that
count from 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import rlx_core as rlx
from rlx_core import fft, linalg
from rlx_core.ir.dims import Dim, holds
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.array_linalg import factorisation
from rlx_torch.aten.context import here, refuse
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


# --------------------------------------------------------------------------- factors as torch has them


rows(
    {
        "linalg_matrix_exp matrix_exp": lambda x: cast(Any, factorisation("expm"))()(x),
        "_linalg_det": lambda x: (linalg.det(x), *_factored(x)),
        "_linalg_slogdet": lambda x: (*linalg.slogdet(x), *_factored(x)),
    }
)


def _lu(x: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """The factors in one matrix, the pivots and the order of the rows, all counted from 0."""
    if not pivot:
        refuse("factors with pivoting")
    if not holds("==", x.shape[-1], x.shape[-2]):
        refuse("factors of square matrices")
    packed, pivots, order = cast(Any, factorisation("lu"))()(x)
    return packed, pivots, order


def _factored(x: Any) -> tuple[Any, Any]:
    """Return the factors that torch saves of an operand for the backward pass: of its transpose if it is stored by rows."""
    values = here.get().node.args[0].meta["val"]
    is_turned = values.is_contiguous() and not x.dtype.is_complex
    packed, pivots, _ = _lu(rlx.matrix_transpose(x) if is_turned else x)
    return packed, pivots + 1


def _order(pivots: Any) -> Any:
    """The order of the rows after one swap after the other; pivots count from 1."""
    size = pivots.shape[-1]
    places = rlx.arange(size, dtype=rlx.i32)

    def swapped(number: Any, order: Any) -> Any:
        other = rlx.take(pivots, rlx.reshape(number, (1,)), axis=-1) - 1
        first, second = (
            rlx.sum(rlx.where(position, order, 0), axis=-1, keepdims=True)
            for position in (places == number, places == other)
        )
        return rlx.astype(rlx.where(places == number, second, rlx.where(places == other, first, order)), rlx.i32)

    return rlx.fori_loop(0, size, swapped, rlx.broadcast_to(places, pivots.shape))


def _permuting(order: Any, dtype: Any) -> Any:
    """P of `a = P l u`: row `order[i]` of `a` is row i of `l u`."""
    places = rlx.arange(order.shape[-1], dtype=rlx.i32)
    return rlx.astype(rlx.expand_dims(places, axis=-1) == rlx.expand_dims(order, axis=-2), dtype)


def _parts(packed: Any) -> tuple[Any, Any]:
    return rlx.tril(packed, k=-1) + rlx.eye(packed.shape[-1], dtype=packed.dtype), rlx.triu(packed)


@aten("linalg_lu_factor_ex")
def lu_factor_ex(x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    packed, pivots, _ = _lu(x, pivot)
    return packed, pivots + 1, no_fault(x)


@aten("linalg_lu")
def lu(x: Any, *, pivot: bool = True) -> Any:
    packed, _, order = _lu(x, pivot)
    return (_permuting(order, x.dtype), *_parts(packed))


@aten("lu_unpack")
def lu_unpack(packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    if not holds("==", packed.shape[-1], packed.shape[-2]):
        refuse("factors of square matrices")
    empty = rlx.zeros((0,), dtype=packed.dtype)
    lower, upper = _parts(packed) if unpack_data else (empty, empty)
    return (_permuting(_order(pivots), packed.dtype) if unpack_pivots else empty), lower, upper


@aten("linalg_lu_solve")
def lu_solve(packed: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """x of `a x = b`, of `aᴴ x = b`, or of `x a = b`, from the factors of `a`."""
    if not left:
        transposed = lu_solve(packed, pivots, rlx.conj(rlx.matrix_transpose(b)), adjoint=not adjoint)
        return rlx.conj(rlx.matrix_transpose(transposed))
    triangular = cast(Any, factorisation("triangular_solve"))
    permuting = _permuting(_order(pivots), packed.dtype)
    b = rlx.astype(b, packed.dtype, copy=False)
    rows = broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    packed = rlx.broadcast_to(packed, (*rows, *packed.shape[-2:]))
    b = rlx.broadcast_to(b, (*rows, *b.shape[-2:]))
    if adjoint:
        first = triangular(lower=False, operation="adjoint")(packed, b)
        return rlx.matmul(permuting, triangular(lower=True, operation="adjoint", unit_diagonal=True)(packed, first))
    first = triangular(lower=True, unit_diagonal=True)(packed, rlx.matmul(rlx.matrix_transpose(permuting), b))
    return triangular(lower=False)(packed, first)


@aten("_linalg_solve_ex")
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution, and the factors of `a` as it is: so the derivative reads them when it is traced."""
    packed, pivots, _ = _lu(a)
    return solve(a, b, left=left), packed, pivots + 1, no_fault(a)


# ---------------------------------------------------------------------------------- Fourier transforms


def _norm(normalization: int, forward: bool) -> Any:
    """Torch's number (nothing, 1/√n, 1/n) in NumPy's words, which name the direction that is scaled."""
    return ("backward", "ortho", "forward")[normalization if forward else 2 - normalization]


@aten("_fft_r2c")
def fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not onesided:
        return fft_c2c(rlx.make_complex(x, rlx.zeros_like(x)), dim, normalization, True)
    result = fft.rfft(x, axis=dim[-1], norm=_norm(normalization, True))
    return fft_c2c(result, dim[:-1], normalization, True) if len(dim) > 1 else result


@aten("_fft_c2c")
def fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    for axis in dim:
        x = (fft.fft if forward else fft.ifft)(x, axis=axis, norm=_norm(normalization, forward))
    return x


@aten("_fft_c2r")
def fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> Any:
    x = fft_c2c(x, dim[:-1], normalization, False) if len(dim) > 1 else x
    return fft.irfft(x, n=last_dim_size, axis=dim[-1], norm=_norm(normalization, False))

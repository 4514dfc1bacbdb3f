"""Decompositions of matrices, Fourier transforms, distances, and bags of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import fft, linalg
from rlx_core.ir.dims import Dim, holds
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def _failed(x: Any) -> Any:
    """The word in which LAPACK says what failed: 0, because here that is an error when it runs."""
    return rlx.zeros(x.shape[:-2], dtype=rlx.i32)


def _solve(a: Any, b: Any, left: bool = True) -> Any:
    if not left:
        return rlx.matrix_transpose(_solve(rlx.matrix_transpose(a), rlx.matrix_transpose(b)))
    return linalg.solve(a, b)


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
    """Of the matrix that a triangle of `x` says."""
    part = rlx.tril(x) if UPLO == "L" else rlx.triu(x)
    strict = rlx.tril(x, k=-1) if UPLO == "L" else rlx.triu(x, k=1)
    whole = part + rlx.conj(rlx.matrix_transpose(strict))
    if not compute_v:
        return linalg.eigvalsh(whole), rlx.zeros((0,), dtype=x.dtype)
    return tuple(linalg.eigh(whole))


@aten("linalg_cholesky_ex")
def cholesky_ex(x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper), _failed(x)


@aten("linalg_inv_ex")
def inv_ex(x: Any, *, check_errors: bool = False) -> Any:
    return linalg.inv(x), _failed(x)


@aten("linalg_qr")
def qr(x: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return rlx.zeros((0,), dtype=x.dtype), linalg.qr(x).R
    return tuple(linalg.qr(x, mode=mode))  # type: ignore[arg-type]


@aten("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    part = rlx.triu(a) if upper else rlx.tril(a)
    if unitriangular:
        eye = rlx.eye(a.shape[-1], dtype=a.dtype)
        part = (rlx.triu(a, k=1) if upper else rlx.tril(a, k=-1)) + eye
    return _solve(part, b, left)


@aten("triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    part = solve_part = rlx.triu(a) if upper else rlx.tril(a)
    if unitriangular:
        solve_part = (rlx.triu(a, k=1) if upper else rlx.tril(a, k=-1)) + rlx.eye(a.shape[-1], dtype=a.dtype)
    return _solve(rlx.matrix_transpose(solve_part) if transpose else solve_part, b), part


@aten("_linalg_det")
def det(x: Any) -> Any:
    """The determinant; the factors that torch keeps beside it are not computed."""
    return linalg.det(x), rlx.zeros_like(x), rlx.zeros(x.shape[:-1], dtype=rlx.i32)


rows(
    {
        "linalg_det det": linalg.det,
        "linalg_inv inverse": linalg.inv,
        "linalg_cholesky": lambda x, upper=False: linalg.cholesky(x, upper=upper),
        "cholesky": lambda x, upper=False: linalg.cholesky(x, upper=upper),
        "linalg_svdvals": linalg.svdvals,
        "linalg_eigvalsh": lambda x, UPLO="L": eigh(x, UPLO)[0],
        "linalg_slogdet slogdet": lambda x: tuple(linalg.slogdet(x)),
        "linalg_matrix_power matrix_power": linalg.matrix_power,
        "trace": lambda x: linalg.trace(x, dtype=rlx.i64 if x.dtype.kind in ("int", "uint", "bool") else x.dtype),
        "linalg_cross": lambda a, b, dim=-1: linalg.cross(a, b, axis=dim),
    }
)


@aten("linalg_solve")
def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    if b.ndim == 1 or (a.ndim - 1 == b.ndim and all(holds("==", m, n) for m, n in zip(a.shape, b.shape, strict=False))):
        return rlx.squeeze(_solve(a, rlx.expand_dims(b, axis=-1), left), axis=-1)
    return _solve(a, b, left)


# ------------------------------------------------------------------------------------------- Fourier transforms


def _norm(normalization: int, forward: bool) -> Any:
    """Torch's number (nothing, 1/√n, 1/n) in NumPy's words, which name the direction that is scaled."""
    return {0: "backward", 1: "ortho", 2: "forward"}[normalization] if forward else {
        0: "forward", 1: "ortho", 2: "backward",
    }[normalization]  # fmt: skip


@aten("_fft_r2c")
def fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not onesided:
        return fft_c2c(rlx.make_complex(x, rlx.zeros_like(x)), dim, normalization, True)
    found = fft.rfft(x, axis=dim[-1], norm=_norm(normalization, True))
    return fft_c2c(found, dim[:-1], normalization, True) if len(dim) > 1 else found


@aten("_fft_c2c")
def fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    for axis in dim:
        x = (fft.fft if forward else fft.ifft)(x, axis=axis, norm=_norm(normalization, forward))
    return x


@aten("_fft_c2r")
def fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> Any:
    x = fft_c2c(x, dim[:-1], normalization, False) if len(dim) > 1 else x
    return fft.irfft(x, n=last_dim_size, axis=dim[-1], norm=_norm(normalization, False))


# ----------------------------------------------------------------------------------------------------- distances


def _norm_of(difference: Any, p: float, axis: int) -> Any:
    size = rlx.abs(difference)
    if p == 0:
        return rlx.sum(convert(rlx.not_equal(difference, as_value(0, difference.dtype)), difference.dtype), axis=axis)
    if p == math.inf:
        return rlx.max(size, axis=axis)
    if p == 1:
        return rlx.sum(size, axis=axis)
    if p == 2:
        return rlx.sqrt(rlx.sum(size * size, axis=axis))
    zero = rlx.equal(size, as_value(0, size.dtype))
    powers = rlx.where(zero, as_value(0, size.dtype), rlx.pow(rlx.where(zero, as_value(1, size.dtype), size), p))
    return rlx.pow(rlx.sum(powers, axis=axis), as_value(1 / p, size.dtype))


@aten("_cdist_forward", "cdist", "_euclidean_dist")
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """The p-norm of the difference of every row of `a` and every row of `b`."""
    return _norm_of(rlx.expand_dims(a, axis=-2) - rlx.expand_dims(b, axis=-3), p, -1)


@aten("_cdist_backward")
def cdist_backward(g: Any, a: Any, b: Any, p: float, found: Any) -> Any:
    return rlx.vjp(lambda a: cdist(a, b, p), a)[1](g)[0]


@aten("_pdist_forward", "pdist")
def pdist(x: Any, p: float = 2.0) -> Any:
    """The p-norm of the difference of every two rows, the first before the second."""
    if not isinstance(x.shape[0], int):
        refuse("cdist, where the number of rows is a symbol")
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm_of(rlx.take(x, first, axis=0) - rlx.take(x, second, axis=0), p, -1)


@aten("_pdist_backward")
def pdist_backward(g: Any, x: Any, p: float, found: Any) -> Any:
    return rlx.vjp(lambda x: pdist(x, p), x)[1](g)[0]


# ---------------------------------------------------------------------------------------------- bags of embeddings


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means (1) or largest (2) of rows of a table, one for each bag of indices from an offset to the next."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    n = indices.shape[0]
    starts = convert(offsets[:bags] if include_last_offset else offsets, rlx.i64)
    begun = rlx.greater_equal(rlx.reshape(rlx.arange(n), (n, 1)), starts)
    bag = rlx.sum(convert(begun, rlx.i64), axis=1) - 1
    kept = rlx.not_equal(indices, as_value(padding_idx, indices.dtype))
    found = rlx.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        found = found * rlx.expand_dims(per_sample_weights, axis=-1)
    lost = as_value(-math.inf if mode == 2 else 0, found.dtype)
    found = rlx.where(rlx.expand_dims(kept, axis=-1), found, lost)
    counts = rlx.scatter_add(convert(kept, found.dtype), bag, bags)
    sizes = rlx.scatter_add(convert(kept, rlx.i64), bag, bags)
    some = rlx.expand_dims(rlx.greater(counts, as_value(0, counts.dtype)), axis=-1)
    if mode == 2:
        start = rlx.broadcast_to(lost, (bags, weight.shape[1]))
        y = rlx.where(some, rlx.scatter(start, found, bag, mode="max"), as_value(0, found.dtype))
    else:
        y = rlx.scatter_add(found, bag, bags)
        if mode == 1:
            y = y / rlx.expand_dims(rlx.maximum(counts, as_value(1, counts.dtype)), axis=-1)
    return y, bag, sizes, rlx.zeros((bags,), dtype=rlx.i64)

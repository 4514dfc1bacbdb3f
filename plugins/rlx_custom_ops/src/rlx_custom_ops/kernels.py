"""Kernels for target `cpu`: LAPACK through SciPy, one matrix after the other, written into the buffers of the plan.

LAPACK requires matrices in column-major order, so operands may be strided and each is copied once. `Inverse`, `Logdet`,
`Pinv`, `Lstsq`, `Polar` and `Kron` have no kernel: they are replaced by their decompositions. The conventions (triangles,
phases, refused matrices) are those of the references; a test compares the two on every sample.
Real matrices of few rows have native code, which takes precedence (`emitters`).
Their names are prefixed because names are unique in a table to which several packages add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import get_lapack_funcs

from rlx_core.pipeline.kernels import KernelTable
from rlx_custom_ops.errors import no_convergence, no_minor, singular
from rlx_custom_ops.ops.cholesky import Cholesky
from rlx_custom_ops.ops.determinant import Slogdet
from rlx_custom_ops.ops.eig import Eig, in_order
from rlx_custom_ops.ops.eigh import Eigh
from rlx_custom_ops.ops.expm import Expm
from rlx_custom_ops.ops.lu import Lu
from rlx_custom_ops.ops.matrices import finite, hermitian_array, stack
from rlx_custom_ops.ops.phases import phases
from rlx_custom_ops.ops.qr import Qr, with_positive_diagonal
from rlx_custom_ops.ops.solve import Solve
from rlx_custom_ops.ops.svd import Svd, with_fixed_phases
from rlx_custom_ops.ops.triangular import TriangularSolve

kernels = KernelTable("cpu", plugin="linalg")

LAPACK = "f32 f64 c64 c128"
NUMBER = {"none": 0, "transpose": 1, "adjoint": 2}  # what `trtrs` calls the operations


def routine(name: str, *arrays: np.ndarray) -> Callable[..., Any]:
    """The LAPACK routine for the dtype of the arrays."""
    function: Any = get_lapack_funcs(name, arrays)  # typed as one routine or a list of them
    return function


@kernels.register(Cholesky, dtypes=LAPACK, accepts_strides=True)
def lapack_potrf(op: Any, a: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Blocked Cholesky."""
    a = hermitian_array(a)
    if a.size == 0:
        return
    factor = routine("potrf", a)
    for index in finite(a, out):
        lower, info = factor(a[index], lower=True, clean=True)
        if info > 0:
            raise no_minor("cholesky", a.shape[-1])(index, info)
        out[index] = lower


@kernels.register(TriangularSolve, dtypes=LAPACK, accepts_strides=True)
def lapack_trtrs(op: Any, a: np.ndarray, b: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Substitution, forwards or backwards."""
    op.check_diagonal(a)
    if b.size == 0:
        return
    substitute = routine("trtrs", a, b)
    for index in stack(a):
        # SciPy hands `b` over in Fortran order and gets a copy back; `info` is 0 because the diagonal was checked.
        out[index] = substitute(
            a[index], b[index], lower=op.lower, trans=NUMBER[op.operation], unitdiag=op.unit_diagonal
        )[0]


@kernels.register(Solve, dtypes=LAPACK, accepts_strides=True)
def lapack_gesv(op: Any, a: np.ndarray, b: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """LU with partial pivoting, and two substitutions."""
    if b.size == 0:
        return
    solve = routine("gesv", a, b)
    for index in finite(a, out):
        _, _, x, info = solve(a[index], b[index])
        if info > 0:
            raise singular("solve", index, a[index])
        out[index] = x


@kernels.register(Lu, dtypes=LAPACK, accepts_strides=True)
def lapack_getrf_packed(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, ...], workspace: Any) -> None:
    """LU with partial pivoting, blocked."""
    packed, pivots, permutation = out
    if a.size == 0:
        return
    factor = routine("getrf", a)
    for index in stack(a):
        packed[index], pivots[index], _ = factor(a[index])  # `info` reports a pivot of 0, which is a valid result here
        order = np.arange(a.shape[-1])
        for i, pivot in enumerate(pivots[index]):
            order[[i, pivot]] = order[[pivot, i]]
        permutation[index] = order


@kernels.register(Slogdet, dtypes=LAPACK, accepts_strides=True)
def lapack_getrf(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, np.ndarray], workspace: Any) -> None:
    """The diagonal of LU with partial pivoting."""
    signs, logarithms = out
    if a.size == 0:
        signs[...], logarithms[...] = 1, 0
        return
    factor = routine("getrf", a)
    for index in stack(a):
        lu, pivots, _ = factor(a[index])  # `info` reports a pivot of 0, which is a valid result here
        diagonal = np.diagonal(lu)
        modulus = np.abs(diagonal)
        swaps = np.count_nonzero(pivots != np.arange(len(pivots)))
        with np.errstate(divide="ignore", invalid="ignore"):
            directions = np.where(modulus == 0, 0, diagonal / modulus)
            signs[index] = (-1) ** (swaps % 2) * np.prod(directions)
            logarithms[index] = np.sum(np.log(modulus))


@kernels.register(Qr, dtypes=LAPACK, accepts_strides=True)
def lapack_geqrf(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, np.ndarray], workspace: Any) -> None:
    """Householder reflections."""
    for index in finite(a, *out):
        q, r = scipy.linalg.qr(a[index], mode="economic", check_finite=False)
        out[0][index], out[1][index] = with_positive_diagonal(q, r)


@kernels.register(Eigh, dtypes=LAPACK, accepts_strides=True)
def lapack_heevd(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, np.ndarray], workspace: Any) -> None:
    """Divide and conquer on the tridiagonal form."""
    a = hermitian_array(a)
    for index in finite(a, *out):
        try:
            w, v = scipy.linalg.eigh(a[index], driver="evd", check_finite=False)
        except np.linalg.LinAlgError:
            raise no_convergence("eigh", index) from None
        out[0][index], out[1][index] = w, v * phases(v)


@kernels.register(Eig, dtypes=LAPACK, accepts_strides=True)
def lapack_geev(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, np.ndarray], workspace: Any) -> None:
    """The Hessenberg form and shifted QR steps."""
    for index in finite(a, *out):
        try:
            eigen = scipy.linalg.eig(a[index], check_finite=False)
        except np.linalg.LinAlgError:
            raise no_convergence("eig", index) from None
        out[0][index], out[1][index] = in_order(*eigen)


@kernels.register(Svd, dtypes=LAPACK, accepts_strides=True)
def lapack_gesdd(op: Any, a: np.ndarray, *, out: tuple[np.ndarray, ...], workspace: Any) -> None:
    """Divide and conquer on the bidiagonal form."""
    for index in finite(a, *out):
        try:
            factors = scipy.linalg.svd(a[index], full_matrices=False, check_finite=False)
        except np.linalg.LinAlgError:
            raise no_convergence("svd", index) from None
        for part, factor in zip(out, with_fixed_phases(*factors), strict=True):
            part[index] = factor


@kernels.register(Expm, dtypes=LAPACK, accepts_strides=True)
def scipy_expm(op: Any, a: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Scaling and squaring with a degree chosen by the norm (Al-Mohy & Higham 2010)."""
    for index in finite(a, out):
        out[index] = scipy.linalg.expm(a[index])

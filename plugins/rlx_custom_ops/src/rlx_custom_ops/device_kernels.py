"""Kernels for target `cuda`: cuSOLVER and cuBLAS through CuPy, whole stacks at once, on the arrays of the plan.

The conventions (triangles, phases, refused matrices) are those of the references. CuPy synchronises and reports where a
factorization fails; then the reference determines which matrix it was and why, on a copy of the operands on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_core.emit.table import DeviceTable
from rlx_custom_ops.ops.cholesky import Cholesky
from rlx_custom_ops.ops.determinant import Slogdet
from rlx_custom_ops.ops.eigh import Eigh
from rlx_custom_ops.ops.phases import PIVOT
from rlx_custom_ops.ops.qr import Qr
from rlx_custom_ops.ops.solve import Solve
from rlx_custom_ops.ops.svd import Svd
from rlx_custom_ops.ops.triangular import TriangularSolve

kernels = DeviceTable("cuda", plugin="linalg")

REAL = "f32 f64"


@kernels.library(Cholesky, dtypes=REAL, name="library_potrf")
def cholesky(op: Any, cupy: Any, a: Any, into: Any) -> None:
    """Cholesky of each matrix of a stack at once."""
    written(op, cupy, (a,), (into,), lambda: of_finite(cupy, symmetric(a), lambda x: (cupy.linalg.cholesky(x),)))


@kernels.library(Qr, dtypes=REAL, name="library_geqrf")
def qr(op: Any, cupy: Any, a: Any, q: Any, r: Any) -> None:
    """Householder reflections, with the signs of R's diagonal moved into Q."""

    def factors(x: Any) -> tuple[Any, ...]:
        q, r = cupy.linalg.qr(x)
        sign = cupy.where(cupy.diagonal(r, axis1=-2, axis2=-1) < 0, x.dtype.type(-1), x.dtype.type(1))
        return q * sign[..., None, :], r * sign[..., :, None]

    written(op, cupy, (a,), (q, r), lambda: of_finite(cupy, a, factors))


@kernels.library(Eigh, dtypes=REAL, name="library_syevd")
def eigh(op: Any, cupy: Any, a: Any, w: Any, v: Any) -> None:
    """Divide and conquer; of stacks, Jacobi's method."""

    def pairs(x: Any) -> tuple[Any, ...]:
        w, v = cupy.linalg.eigh(x)
        return w, v * signs(cupy, v)

    written(op, cupy, (a,), (w, v), lambda: of_finite(cupy, symmetric(a), pairs))


@kernels.library(Svd, dtypes=REAL, name="library_gesvd")
def svd(op: Any, cupy: Any, a: Any, u: Any, s: Any, vh: Any) -> None:
    """QR iteration; of stacks of small matrices, Jacobi's method."""

    def factors(x: Any) -> tuple[Any, ...]:
        u, s, vh = cupy.linalg.svd(x, full_matrices=False)
        sign = signs(cupy, u)
        return u * sign, s, vh * sign.swapaxes(-1, -2)

    written(op, cupy, (a,), (u, s, vh), lambda: of_finite(cupy, a, factors))


@kernels.library(Solve, dtypes=REAL, name="library_gesv")
def solve(op: Any, cupy: Any, a: Any, b: Any, into: Any) -> None:
    """LU with partial pivoting, and two substitutions."""
    written(op, cupy, (a, b), (into,), lambda: of_finite(cupy, a, lambda x: (cupy.linalg.solve(x, b),)))


@kernels.library(Slogdet, dtypes=REAL, name="library_getrf")
def slogdet(op: Any, cupy: Any, a: Any, signs: Any, logarithms: Any) -> None:
    """Sign and logarithm from the diagonal of LU with partial pivoting; a matrix without elements counts as an identity."""
    sign_and_log = cupy.linalg.slogdet(a) if a.size else (1, 0)
    for into, x in zip((signs, logarithms), sign_and_log, strict=True):
        cupy.copyto(into, x)


@kernels.library(TriangularSolve, dtypes=REAL, name="library_trsm")
def triangular_solve(op: Any, cupy: Any, a: Any, b: Any, into: Any) -> None:
    """Substitution, forwards or backwards; a 0 on the diagonal is looked for first."""
    from cupyx.scipy.linalg import solve_triangular  # it is there wherever CuPy is

    if not op.unit_diagonal and bool((cupy.diagonal(a, axis1=-2, axis2=-1) == 0).any()):
        op.check_diagonal(a.get())
    trans = {"none": 0, "transpose": 1, "adjoint": 2}[op.operation]
    cupy.copyto(into, solve_triangular(a, b, trans, op.lower, op.unit_diagonal))


# ------------------------------------------------------------------------------------------------- details


def written(
    op: Any, cupy: Any, operands: tuple[Any, ...], results: tuple[Any, ...], compute: Callable[[], tuple[Any, ...]]
) -> None:
    """Write computed values to the results; if the library fails, the reference computes them, or raises the error.

    Raises:
        LinearAlgebraError: Raised by the reference.
    """
    from cupyx import errstate  # installed with CuPy

    try:
        with errstate(linalg="raise"):
            computed = compute()
    except np.linalg.LinAlgError:
        host = op.reference(*(x.get() for x in operands))
        computed = tuple(cupy.asarray(x) for x in (host if isinstance(host, tuple) else (host,)))
    for into, x in zip(results, computed, strict=True):
        cupy.copyto(into, x)


def of_finite(cupy: Any, a: Any, factor: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Factors of the matrices that are finite, and NaN for the others, of which the library never sees the elements."""
    is_finite = cupy.isfinite(a).all(axis=(-2, -1))
    factors = factor(cupy.where(is_finite[..., None, None], a, cupy.eye(*a.shape[-2:], dtype=a.dtype)))
    return tuple(
        cupy.where(is_finite[(..., *(None,) * (x.ndim - is_finite.ndim))], x, x.dtype.type(np.nan)) for x in factors
    )


def symmetric(a: Any) -> Any:
    """The symmetric part, halved before it is added, so that no finite matrix overflows."""
    half = a * a.dtype.type(0.5)
    return half + half.swapaxes(-1, -2)


def signs(cupy: Any, vectors: Any) -> Any:
    """For each column, the sign of its pivot (`ops/phases.py`)."""
    modulus = cupy.abs(vectors)
    pivots = cupy.argmax(modulus >= PIVOT * cupy.max(modulus, axis=-2, keepdims=True), axis=-2)
    return cupy.sign(cupy.take_along_axis(vectors, pivots[..., None, :], axis=-2))

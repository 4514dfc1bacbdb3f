"""Shared code of the families: checks of types, the algebra of matrices in the last two axes, and loops over the others.

In formulas, `ᴴ` is the conjugate transpose. The cotangent of a complex z is ∂L/∂z̄, so a linear map and its rule are adjoint
under Re Σ conj(u)·v; where a real number comes from a complex matrix, a factor ½ makes up for the two conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import (
    Dim,
    TensorType,
    Value,
    Zero,
    broadcast_shapes,
    expect_dtype,
    expect_rank,
    expect_shape,
    same_dim,
)

__rlx_library__ = True  # errors point at the line that called us

DTYPES = (rlx.f32, rlx.f64, rlx.c64, rlx.c128)
"""Dtypes of LAPACK. Narrower floats and integers are refused: casting them is the caller's decision."""

EPSILON = {rlx.f32: 2.0**-23, rlx.c64: 2.0**-23, rlx.f64: 2.0**-52, rlx.c128: 2.0**-52}


# ------------------------------------------------------------------------------------------ types


def expect_matrix(name: str, x: TensorType) -> None:
    """Require two or more axes and a dtype of LAPACK.

    Raises:
        ShapeError, DtypeError: It has fewer axes, or another dtype.
    """
    expect_rank(name, x, 2)
    expect_dtype(name, x, DTYPES)


def expect_square(name: str, x: TensorType) -> None:
    """Require a stack of square matrices.

    Raises:
        ShapeError, DtypeError: `x` is no such stack.
    """
    expect_matrix(name, x)
    if not same_dim(x.shape[-1], x.shape[-2]):
        raise ShapeError(f"{name} must be square, not {x}")


def infer_system(a: TensorType, b: TensorType) -> TensorType:
    """The type of the solutions of `a x = b`: a: [..., n, n] and b: [..., n, k], of one dtype, give [..., n, k].

    Raises:
        ShapeError, DtypeError: They are no such systems.
    """
    expect_square("a", a)
    expect_matrix("b", b)
    expect_dtype("b", b, (a.dtype,))
    expect_shape("b", b, (*a.shape[:-1], b.shape[-1]))
    return b


def least_dim(x: TensorType) -> Dim:
    """The smaller one of the last two dims.

    Raises:
        ShapeError: It is unknown, because one of them is a symbol.
    """
    rows, columns = x.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        return min(rows, columns)
    if rows == columns:
        return rows
    raise ShapeError(f"which one of {rows} and {columns} is smaller must be known", hint="bind one of the sizes first")


def real_type(x: TensorType, *shape: Dim) -> TensorType:
    """The real type of norms and eigenvalues of `x`."""
    return TensorType(x.dtype.component, shape)


# ------------------------------------------------------------------------------- values in formulas


def adjoint(x: Any) -> Any:
    """The conjugate transpose, xᴴ."""
    transposed = rlx.matrix_transpose(x)
    return rlx.conjugate(transposed) if transposed.dtype.is_complex else transposed


def hermitian(x: Any) -> Any:
    """The Hermitian part, (x + xᴴ) / 2."""
    return 0.5 * (x + adjoint(x))


def lower_half(x: Any) -> Any:
    """The lower triangle with the diagonal halved, so that a Hermitian x is `lower_half(x)` plus its adjoint."""
    return 0.5 * (rlx.tril(x) + rlx.tril(x, k=-1))


def upper_half(x: Any) -> Any:
    """The upper triangle with the diagonal halved."""
    return 0.5 * (rlx.triu(x) + rlx.triu(x, k=1))


def real_part(x: Any) -> Any:
    return rlx.real(x) if x.dtype.is_complex else x


def rows(x: Any) -> Any:
    """Return a vector per matrix in the form that scales its columns: element j for column j."""
    return rlx.expand_dims(x, -2)


def present(t: Value | Zero, like: Value) -> Any:
    """Return a tangent or cotangent as a value: zeros of the primal's type if it is `Zero`."""
    return rlx.zeros_like(like) if isinstance(t, Zero) else t


# --------------------------------------------------------------------------------------- batching


def free_leading_axes(op: Any, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """The batching rule of all that maps matrices in the last two axes: a new axis in front is one more leading axis."""
    return op(*(v if b else rlx.broadcast_to(v, (size, *v.shape)) for v, b in zip(x, is_batched, strict=True)))


def batched_solve(op: Any, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """The batching rule of solves: one matrix for many right sides is factorised once, their columns side by side."""
    a, b = x
    if is_batched[0] or a.ndim > 2:
        return free_leading_axes(op, size, x, is_batched)
    side_by_side = rlx.permute_dims(b, (1, 0, 2))
    solved = op(a, rlx.reshape(side_by_side, (b.shape[1], size * b.shape[2])))
    return rlx.permute_dims(rlx.reshape(solved, side_by_side.shape), (1, 0, 2))


def of_systems(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """A function of a matrix and right sides, as the Array API calls `solve`: leading dims broadcast, and a `b` with one
    axis is one column, whose axis is gone again in the result.
    """
    a, b = (x if isinstance(x, Value) else np.asarray(x) for x in (a, b))
    is_vector = b.ndim == 1
    columns = rlx.expand_dims(b, -1) if is_vector else b
    if a.ndim >= 2 and columns.ndim >= 2:
        leading = broadcast_shapes(tuple(a.shape[:-2]), tuple(columns.shape[:-2]))
        a, columns = (repeated(x, (*leading, *x.shape[-2:])) for x in (a, columns))
    x = function(a, columns)
    return rlx.squeeze(x, axis=-1) if is_vector else x


def repeated(x: Any, shape: tuple[Dim, ...]) -> Any:
    """`x` broadcast to `shape`; no node where it has it."""
    return x if tuple(x.shape) == shape else rlx.broadcast_to(x, shape)


# ----------------------------------------------------------------------------------------- arrays


def stack(a: np.ndarray) -> Iterator[tuple[int, ...]]:
    """The batch index of every matrix in `a`."""
    yield from np.ndindex(a.shape[:-2])


def hermitian_array(a: np.ndarray) -> np.ndarray:
    """The Hermitian part of arrays. Halved before they are added, so that no finite matrix overflows."""
    half = a * a.real.dtype.type(0.5)
    return np.asarray(half + half.swapaxes(-1, -2).conj())


def finite(a: np.ndarray, *results: np.ndarray) -> Iterator[tuple[int, ...]]:
    """The batch index of every finite matrix in `a`; the results of the others become NaN.

    LAPACK must not see those: a NaN or an infinity can keep its iterations from ending, and its pivots pass a NaN by.
    """
    for index in stack(a):
        if np.isfinite(a[index]).all():
            yield index
            continue
        for result in results:
            result[index] = np.nan

"""Linear algebra as the Python Array API names it; `rlx_core.linalg` is its namespace.

Products, norms, `solve` and `inv` are composed of rlx ops. Factorisations are ops of the domain `linalg`, which a package
provides: they are looked up like any op, and if no package provides them, the error names one that does.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, i64
from rlx_core.ir.op import Op
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.activation import exp
from rlx_core.ops.arguments import listed, whole
from rlx_core.ops.arithmetic import abs, multiply, square, subtract
from rlx_core.ops.array_elementwise import conj, dtype_of
from rlx_core.ops.array_shapes import (
    broadcast_to,
    diagonal,
    expand_dims,
    matrix_transpose,
    roll,
    shape_of,
    squeeze,
)
from rlx_core.ops.array_statistics import max, sum
from rlx_core.ops.comparison import greater
from rlx_core.ops.creation import eye_matrix, zeros
from rlx_core.ops.linalg import matmul, operand
from rlx_core.ops.movement import concat
from rlx_core.ops.solve import solve
from rlx_core.plugins import default_host

DOMAIN: Final = "linalg"


class EigResult(NamedTuple):
    """The result of `eig`: complex eigenvalues, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """The result of `eigh`: the eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class LstsqResult(NamedTuple):
    """The result of `lstsq`."""

    x: Any
    residuals: Any
    rank: Any
    singular_values: Any


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The result of `slogdet`: the determinant's sign, and the logarithm of its modulus."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """The result of `svd`: the singular values in descending order, between the vectors."""

    U: Any
    S: Any
    Vh: Any


def factorisation(name: str) -> type[Op]:
    """Return the op of that name in the domain of linear algebra.

    Raises:
        PluginError: No installed package provides it; the error names one that does.
    """
    op_class: type[Op] = default_host().load("ops", f"{DOMAIN}.{name}")
    return op_class


def sides(function: str, x: Any) -> tuple[Any, Any]:
    """Return the last two dims."""
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(f"{function}: x must have 2 or more axes, not {len(shape)}")
    return shape[-2], shape[-1]


def _order(function: str, x: Any) -> Any:
    """Return the number of rows of square matrices."""
    rows, columns = sides(function, x)
    if rows != columns:
        raise ShapeError(f"{function}: x must hold square matrices, not {rows} × {columns}")
    return rows


def expect_floating(function: str, x: Any) -> DType:
    actual = dtype_of(x)
    if not actual.is_differentiable:
        raise DtypeError(f"{function}: x must be float or complex, not {actual}")
    return actual


def _adjoint(x: Any) -> Any:
    return conj(matrix_transpose(x))


# ------------------------------------------------------------------------------ factorisations


@checked_call
def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower triangle L with L Lᴴ = x, or the upper one U with Uᴴ U = x."""
    lower = factorisation("cholesky")()(x)
    return _adjoint(lower) if upper else lower


@checked_call
def eig(x: Any, /) -> EigResult:
    """The complex eigenvalues of any square matrices, by their real parts, then their imaginary ones, and the eigenvectors."""
    return EigResult(*factorisation("eig")()(x))


@checked_call
def eigvals(x: Any, /) -> Any:
    """The complex eigenvalues of any square matrices, in the order of `eig`."""
    return eig(x).eigenvalues


@checked_call
def eigh(x: Any, /) -> EighResult:
    """The eigenvalues and eigenvectors of Hermitian matrices."""
    return EighResult(*factorisation("eigh")()(x))


@checked_call
def eigvalsh(x: Any, /) -> Any:
    """The eigenvalues of Hermitian matrices, in ascending order."""
    return eigh(x).eigenvalues


@checked_call
def qr(x: Any, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Q with orthonormal columns and an upper triangle R, with Q R = x; `complete` makes Q square."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    q, r = factorisation("qr")()(x)
    m, k = sides("qr", q)
    if mode == "complete" and m != k:
        below = zeros((*shape_of(r)[:-2], m - k, shape_of(r)[-1]), dtype_of(r))
        q, r = _completed(q), concat([r, below], axis=-2)
    return QRResult(q, r)


@checked_call
def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its modulus."""
    return SlogdetResult(*factorisation("slogdet")()(x))


@checked_call
def det(x: Any, /) -> Any:
    """The determinant; `slogdet` avoids its overflow."""
    sign, logarithm = slogdet(x)
    return multiply(sign, exp(logarithm))


@checked_call
def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition; with `full_matrices` U and Vh are square."""
    u, s, vh = factorisation("svd")()(x)
    if full_matrices:
        (m, k), (_, n) = sides("svd", u), sides("svd", vh)
        u = u if m == k else _completed(u)
        vh = vh if n == k else _adjoint(_completed(_adjoint(vh)))
    return SVDResult(u, s, vh)


def _completed(q: Any) -> Any:
    """Return orthonormal columns, extended to a square matrix."""
    m, k = sides("svd", q)
    if not (isinstance(m, int) and isinstance(k, int)):
        raise ShapeError(f"svd, qr: square factors need known sizes, not {m} × {k}", hint="ask for the reduced ones")
    # I - Q Qᴴ projects on the complement: its last eigenvalues are 1, and their vectors are orthonormal.
    complement = subtract(eye_matrix(n=m, m=m, dtype=dtype_of(q)), matmul(q, _adjoint(q)))
    return concat([q, operand(eigh(complement).eigenvectors)[..., k:]], axis=-1)


@checked_call
def svdvals(x: Any, /) -> Any:
    """The singular values, in descending order."""
    return svd(x, full_matrices=False).S


@checked_call
def pinv(x: Any, /, *, rtol: float | None = None) -> Any:
    """The pseudoinverse; singular values up to `rtol` (a number; max(m, n) ε by default) times the largest count as 0."""
    return factorisation("pinv")(rtol=None if rtol is None else _number("pinv", rtol))(x)  # type: ignore[call-arg]


@checked_call
def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """The number of singular values larger than `rtol` (max(m, n) ε by default) times the largest."""
    s = svdvals(x)
    if rtol is None:
        rtol = builtins.max(*sides("matrix_rank", x)) * float(np.finfo(dtype_of(s).numpy).eps)
    if 0 in shape_of(s):
        return zeros(shape_of(s)[:-1], i64)
    limit = multiply(max(s, axis=-1, keepdims=True), expand_dims(rtol, -1) if shape_of(rtol) else rtol)
    return sum(greater(s, limit), axis=-1)


def _number(function: str, x: Any) -> float:
    if shape_of(x) or not isinstance(x, int | float | np.generic | np.ndarray) or np.asarray(x).dtype.kind not in "iuf":
        raise ShapeError(f"{function}: rtol is one known number for all matrices")
    return float(x)


# ------------------------------------------------------------------------- solutions and powers


@checked_call
def inv(x: Any, /) -> Any:
    """The inverse; of a singular matrix NaN or infinities."""
    n = _order("inv", x)
    return solve(x, eye_matrix(n=n, m=n, dtype=expect_floating("inv", x)))


@checked_call
def lstsq(a: Any, b: Any, /, *, rtol: float | None = None) -> LstsqResult:
    """The x that minimises |a x - b|, and of these the shortest, by the singular value decomposition.

    Args:
        a: `[.., m, n]`.
        b: `[.., m, k]`, or `[m]` for a single matrix.
        rtol: Singular values up to it (max(m, n) ε by default) times the largest count as 0.

    Returns:
        x `[.., n, k]` or `[n]`; the sums of squares of a x - b, of each column; the rank; the singular values.

    Raises:
        ShapeError: `a` and `b` have different numbers of rows.
    """
    (m, _), is_line = sides("lstsq", a), len(shape_of(b)) == 1
    if not shape_of(b) or shape_of(b)[0 if is_line else -2] != m:
        raise ShapeError(f"lstsq: a {list(shape_of(a))} and b {list(shape_of(b))} have other numbers of rows")
    columns = expand_dims(b, 1) if is_line else operand(b)
    share = None if rtol is None else _number("lstsq", rtol)
    x = factorisation("lstsq")(rtol=share)(a, columns)  # type: ignore[call-arg]
    residuals = sum(square(abs(subtract(matmul(a, x), columns))), axis=-2)
    return LstsqResult(squeeze(x, -1) if is_line else x, residuals, matrix_rank(a, rtol=rtol), svdvals(a))


@checked_call
def multi_dot(arrays: Sequence[Any], /) -> Any:
    """The product of matrices, in the order that takes the fewest multiplications; the first and the last may be vectors.

    Raises:
        ShapeError: There are fewer than two, or their sizes are unknown.
    """
    arrays = listed("multi_dot: arrays", arrays)
    if len(arrays) < 2 or not builtins.all(len(shape_of(x)) in (1, 2) for x in arrays):
        shapes = ", ".join(str(list(shape_of(x))) for x in arrays)
        raise ShapeError(f"multi_dot: takes 2 or more matrices, and vectors at the ends, not {shapes or 'nothing'}")
    sizes = [(1, *shape_of(x))[-2] if i == 0 else shape_of(x)[0] for i, x in enumerate(arrays)]
    sizes.append(1 if len(shape_of(arrays[-1])) == 1 else shape_of(arrays[-1])[-1])
    if not builtins.all(isinstance(d, int) for d in sizes):
        raise ShapeError(f"multi_dot: the order of products needs known sizes, not {sizes}")
    # The cheapest product of i … j: its cost, and the index of the factor after which it is split.
    best: dict[tuple[int, int], tuple[Any, int]] = {(i, i): (0, i) for i in range(len(arrays))}
    for length in range(1, len(arrays)):
        for i in range(len(arrays) - length):
            j = i + length
            best[i, j] = builtins.min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
    ranges = [(0, len(arrays) - 1)]
    for i, j in ranges:  # grows during the loop: the two factors of a product are appended to it
        if i < j:
            ranges += [(i, best[i, j][1]), (best[i, j][1] + 1, j)]
    products: dict[tuple[int, int], Any] = {}
    for i, j in reversed(ranges):
        k = best[i, j][1]
        products[i, j] = arrays[i] if i == j else matmul(products[i, k], products[k + 1, j])
    return products[0, len(arrays) - 1]


@checked_call
def matrix_power(x: Any, n: int, /) -> Any:
    """The product of `n` square matrices, of the inverse where `n` is negative, by repeated squaring."""
    order, n = _order("matrix_power", x), whole("matrix_power: n", n)
    base, times, result = (inv(x), -n, None) if n < 0 else (operand(x), n, None)
    while times:
        if times % 2:
            result = base if result is None else matmul(result, base)
        times //= 2
        base = matmul(base, base) if times else base
    one = eye_matrix(n=order, m=order, dtype=dtype_of(x))
    return broadcast_to(one, shape_of(x)) if result is None else result


# ----------------------------------------------------------------------------- products, traces


@checked_call
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
    if axis >= 0 and len(shape_of(x1)) != len(shape_of(x2)):
        raise ShapeError("cross: the axis of operands with unlike numbers of axes is counted from the end")
    for name, x in (("x1", x1), ("x2", x2)):
        size = shape_of(x)[normalize_axis(axis, len(shape_of(x)))]
        if size != 3:
            raise ShapeError(f"cross: {name} has {size} elements along axis {axis}, not 3")

    def turned(x: Any, by: int) -> Any:
        return roll(x, -by, axis)

    return subtract(multiply(turned(x1, 1), turned(x2, 2)), multiply(turned(x1, 2), turned(x2, 1)))


@checked_call
def trace(x: Any, /, *, offset: int = 0, dtype: DType | str | None = None) -> Any:
    """The sum of a diagonal of each matrix, with `dtype` as in `rlx.sum`."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)

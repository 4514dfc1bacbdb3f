"""Sparse least squares by LSQR, as an op whose derivatives are more of the same, with the matrix and its adjoint."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import evolve

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ops import ZERO, Dim, Op, Rejected, Sample, TensorType, Value, Zero, define_op, field, promoted
from rlx_custom_ops.ops.matrices import free_leading_axes
from rlx_custom_ops.ops.samples import anything
from rlx_custom_ops.sparse.csr import Csr
from rlx_custom_ops.sparse.ops.solve import at_least, conjugated, expect_inside, expect_system, product, sampled

__rlx_library__ = True


@define_op(domain="sparse")
class Lsqr(Op):
    """The x of least |b - a x|, and of these the shortest, for the sparse matrix `a` that has `data` at `rows` and `columns`.

    Elements of one place are added up. The problem is solved on the host, in float64 or complex128, and each column of `b` by
    itself. A NaN or an infinity in `a` or `b` makes all of x NaN.

    Derivatives are those of the pseudoinverse while the rank stays as it is, by further problems with `a` and its adjoint.

    Shapes:
        data: [..., e]    rows, columns: integers [..., e]    b: [..., m, k]    ->    x: [..., n, k]

    Attributes:
        m, n: Rows and columns of `a`.
        rtol: It ends where |b - a x| or |aᴴ (b - a x)| is at most `rtol` of the bound given by |b|, |a| and |x|; `None` is ε^⅔
            of the operands' dtype.
        maxiter: The most iterations; `None` is 4 (m + n).

    Raises:
        NotConvergedError: When the program runs.

    Source:
        Paige & Saunders 1982, "LSQR: an algorithm for sparse linear equations and sparse least squares", as SciPy has it. The
        derivatives: Golub & Pereyra 1973, "The differentiation of pseudo-inverses", equation 4.12.
    """

    m: int = field(validator=at_least(0))
    n: int = field(validator=at_least(0))
    rtol: float | None = field(default=None, validator=at_least(0))
    maxiter: int | None = field(default=None, validator=at_least(1))

    @property
    def adjoint(self) -> Lsqr:
        """The op for matrices of the other shape: with exchanged rows and columns, and conjugated data."""
        return evolve(self, m=self.n, n=self.m)

    def prepare(self, data: Value, rows: Value, columns: Value, b: Value) -> tuple[Value | None, ...]:
        data_too, b_too = promoted(data, b)
        return data_too, rows, columns, b_too

    def infer(self, data: TensorType, rows: TensorType, columns: TensorType, b: TensorType) -> TensorType:
        expect_system(data, rows, columns, b, self.m)
        return b.with_shape((*b.shape[:-2], self.n, b.shape[-1]))

    def reference(self, data: np.ndarray, rows: np.ndarray, columns: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = np.empty((*b.shape[:-2], self.n, b.shape[-1]), b.dtype)
        self.solve_into(x, data, rows, columns, b)
        return x

    def solve_into(self, x: np.ndarray, data: np.ndarray, rows: np.ndarray, columns: np.ndarray, b: np.ndarray) -> None:
        """Write the solutions of all problems."""
        if b.size == 0 or x.size == 0:
            x[...] = 0
            return
        systems: Any = importlib.import_module("rlx_custom_ops.sparse.systems")  # SciPy's solvers take 0.2 s to import
        wide = np.result_type(data.dtype, np.float64)
        rtol = float(np.finfo(data.dtype).eps) ** (2 / 3) if self.rtol is None else self.rtol
        for index in np.ndindex(b.shape[:-2]):
            places = expect_inside("row", rows[index], self.m), expect_inside("column", columns[index], self.n)
            a = systems.elements(data[index].astype(wide), *places, (self.m, self.n))
            x[index] = systems.least_squares(self, a, b[index].astype(wide), index, rtol)

    def vjp(
        self, g: Value, data: Value, rows: Value, columns: Value, b: Value, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        adjoint, mirrored = self.adjoint, (conjugated(data), columns, rows)
        h = adjoint(*mirrored, g)
        # h = a⁺ᴴ g. The rest of b is orthogonal to the columns of a, and the rest of g to its rows.
        residual, cotangent_residual = b - product(data, rows, columns, y, self.m), g - product(*mirrored, h, self.n)
        inside = sampled(rows, columns, residual, self(data, rows, columns, h)) - sampled(rows, columns, h, y)
        return inside + sampled(rows, columns, adjoint(*mirrored, y), cotangent_residual), ZERO, ZERO, h

    def jvp(self, t: Sequence[Any], data: Value, rows: Value, columns: Value, b: Value, *, y: Value) -> Value | Zero:
        if isinstance(t[0], Zero):
            return self(data, rows, columns, t[3])
        adjoint, mirrored, moved = self.adjoint, (conjugated(data), columns, rows), (conjugated(t[0]), columns, rows)
        residual = b - product(data, rows, columns, y, self.m)
        right = adjoint(*mirrored, product(*moved, residual, self.n)) - product(t[0], rows, columns, y, self.m)
        right = right if isinstance(t[3], Zero) else right + t[3]
        beyond = product(*moved, adjoint(*mirrored, y), self.n)
        return self(data, rows, columns, right - product(data, rows, columns, beyond, self.m)) + beyond

    batch = free_leading_axes

    def cost(self, data: TensorType, rows: TensorType, columns: TensorType, b: TensorType) -> Dim:
        return 40 * data.size * b.shape[-1]  # of an iteration that takes 10 steps

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for dtype, m, n in (("f64", 5, 3), ("f64", 3, 5), ("c128", 4, 3), ("f64", 4, 4)):
            yield sample(dtype, (), m, n, 2, rtol=1e-14)
        yield sample("f32", (), 5, 3, 1)
        yield sample("f64", (2,), 4, 2, 1, rtol=1e-14)
        yield sample("f64", (), 3, 2, 0)
        yield sample("f64", (), 2, 0, 1)
        four = ("f32[3]", "i32[3]", "i32[3]", "f32[4, 1]")
        yield Rejected(*four, m=3, n=2, error=ShapeError, says="b must be [3, 1]")
        yield Rejected("f32[3]", "i32[2]", *four[2:], m=4, n=2, error=ShapeError, says="rows must be [3]")
        yield Rejected("f16[3]", *four[1:3], "f16[4, 1]", m=4, n=2, error=DtypeError, says="not f16")
        yield Rejected(*four, m=4, n=2, rtol=-1.0, error=ConfigError, says="rtol must be at least 0, not -1.0")


def sample(dtype: str, leading: tuple[int, ...], m: int, n: int, k: int, **settings: Any) -> Sample:
    """Return a sample with a matrix of full rank, with a heavy diagonal and a few elements next to it."""
    e = min(m, n) + (min(m, n) and 4)
    place = f"i32[{', '.join(map(str, (*leading, e)))}]"
    return Sample(
        place.replace("i32", dtype),
        place,
        place,
        f"{dtype}[{', '.join(map(str, (*leading, m, k)))}]",
        make=maker(leading, m, n, k, e, dtype[0] == "c"),
        m=m,
        n=n,
        **settings,
    )


def maker(
    leading: tuple[int, ...], m: int, n: int, k: int, e: int, is_complex: bool
) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def make(rng: np.random.Generator) -> list[np.ndarray]:
        least = min(m, n)
        rows, columns = (rng.integers(0, max(size, 1), (*leading, e)).astype(np.int32) for size in (m, n))
        data = anything(rng, (*leading, e), is_complex)
        rows[..., :least], columns[..., :least] = np.arange(least), np.arange(least)
        data[..., :least] += 3
        return [data, rows, columns, anything(rng, (*leading, m, k), is_complex)]

    return make


def lsqr(
    a: Csr, b: Any, *, damp: float = 0.0, x0: Any = None, rtol: float | None = None, maxiter: int | None = None
) -> Any:
    """The x of least |b - a x|² + damp²·|x - x0|², for b [m] or [m, k]; see `Lsqr` for the rest.

    Args:
        a: Any sparse matrix [m, n].
        damp: Weight of the length of x, from 0.
        x0: Start, [n] or [n, k]: of several solutions, and with `damp`, the one nearest to it is returned; 0 if absent.

    Raises:
        ShapeError: b or x0 has other dims.
        ConfigError: `damp` is below 0.

    >>> a = Csr(np.array([1.0, 1.0, 1.0]), [0, 0, 0], [0, 1, 2, 3], shape=(3, 1))
    >>> np.round(lsqr(a, np.array([1.0, 2.0, 6.0])), 12)
    array([3.])
    """
    m, n = a.shape
    b = b if isinstance(b, Value) else np.asarray(b)
    if b.ndim not in (1, 2) or b.shape[0] != m:
        raise ShapeError(f"sparse.lsqr: b must be [{m}] or [{m}, k], not {list(b.shape)}")
    if not damp >= 0:
        raise ConfigError(f"sparse.lsqr: damp must be at least 0, not {damp!r}")
    if x0 is not None:
        start = x0 if isinstance(x0, Value) else np.asarray(x0)
        if tuple(start.shape) != (n, *b.shape[1:]):
            raise ShapeError(f"sparse.lsqr: x0 must be {[n, *b.shape[1:]]}, not {list(start.shape)}")
        b = b - a @ start
    right = b if b.ndim == 2 else rlx.expand_dims(b, -1)
    data, rows, columns = a.data, a.pattern.rows, a.pattern.columns
    if damp:  # rows below the matrix, so that derivatives know of them
        more = np.arange(n)
        data = rlx.concat([data, np.full(n, damp, data.dtype.numpy if isinstance(data, Value) else data.dtype)])
        rows, columns = np.concatenate([rows, m + more]), np.concatenate([columns, more])
        right = rlx.concat(
            [right, np.zeros((n, right.shape[1]), right.dtype.numpy if isinstance(right, Value) else right.dtype)]
        )
    x = Lsqr(m + n if damp else m, n, rtol, maxiter)(data, rows, columns, right)
    x = x if b.ndim == 2 else rlx.squeeze(x, axis=-1)
    return x if x0 is None else start + x


OPS = (Lsqr,)

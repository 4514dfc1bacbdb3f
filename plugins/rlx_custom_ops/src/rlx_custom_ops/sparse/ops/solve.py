"""Sparse linear systems, as one op with several methods: its derivatives are another such system, with the adjoint."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
from attrs import Attribute

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, IndexRangeError, ShapeError
from rlx_core.ops import (
    ZERO,
    Dim,
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    Zero,
    define_op,
    expect_dtype,
    expect_rank,
    expect_shape,
    field,
    gather,
    promoted,
    scatter_add,
)
from rlx_custom_ops.sparse.csr import Csr
from rlx_custom_ops.sparse.ops.samples import systems

__rlx_library__ = True

Method = Literal["lu", "cholesky", "cg", "bicgstab", "gmres"]
Preconditioner = Literal["none", "jacobi", "ilu"]

HERMITIAN: Final = ("cholesky", "cg")
DIRECT: Final = ("lu", "cholesky")
DTYPES: Final = (rlx.f32, rlx.f64, rlx.c64, rlx.c128)


def at_least(least: int) -> Any:
    """A validator for numbers, which may be absent."""

    def check(op: Op, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and not value >= least:
            raise ConfigError(f"{op.name}: {attribute.name} must be at least {least}, not {value}")

    return check


def expect_system(data: TensorType, rows: TensorType, columns: TensorType, b: TensorType, m: Dim) -> None:
    """Require the elements of sparse matrices of `m` rows, and right sides for them.

    Raises:
        ShapeError, DtypeError: They are of other types.
    """
    expect_rank("data", data, 1)
    expect_dtype("data", data, DTYPES)
    for name, places in (("rows", rows), ("columns", columns)):
        if not places.dtype.is_integer:
            raise DtypeError(f"{name} must be integers, not {places}")
        expect_shape(name, places, data.shape)
    expect_rank("b", b, 2)
    expect_dtype("b", b, (data.dtype,))
    expect_shape("b", b, (*data.shape[:-1], m, b.shape[-1]))


@define_op(domain="sparse", name="solve")
class SparseSolve(Op):
    """The x with a x = b, for the sparse square matrix `a` that has `data` at `rows` and `columns`, and zeros elsewhere.

    Elements of one place are added up. The system is solved on the host, in float64 or complex128, and each column of `b` by
    itself. A NaN or an infinity in `a` or `b` makes all of x NaN.

    The methods `cholesky` and `cg` are for Hermitian positive definite matrices. Only the Hermitian part of `a` counts to
    them, and to their derivatives; a matrix that is far from Hermitian is refused.

    Derivatives: with the cotangent g of x, the cotangent of b is the h with aᴴ h = g, computed by the same method to the same
    tolerance, and the cotangent of a is -h xᴴ at the positions of the elements. So they are no more precise than `rtol`.

    Shapes:
        data: [..., e]    rows, columns: integers [..., e]    b: [..., n, k]    x0: like b    ->    x: like b

    `x0` is the start of an iteration, 0 if it is absent. The result does not depend on it mathematically, so it has no
    derivative.

    Attributes:
        method: "lu" (SuperLU), "cholesky" (SuperLU without exchanges of rows), "cg", "bicgstab" or "gmres".
        preconditioner: Of an iteration: "none", "jacobi" (the diagonal), or "ilu" (an incomplete LU with fill-in, which
            is not symmetric, so not with "cg").
        rtol: An iteration ends where |b - a x| is at most `rtol` |b|; `None` is ε^⅔ of the operands' dtype.
        atol: It also ends where |b - a x| is at most this.
        maxiter: The most iterations (for `gmres`, restarts); `None` is 10 n.
        restart: Number of iterations after which `gmres` restarts.

    Raises:
        SingularMatrixError, NotPositiveDefiniteError, NotConvergedError: When the program runs.

    Source:
        Hestenes & Stiefel 1952 (cg), van der Vorst 1992 (bicgstab), Saad & Schultz 1986 (gmres), Li 2005, "An overview of
        SuperLU" (lu), all as SciPy has them. The derivatives: Giles 2008, "An extended collection of matrix derivative
        results", section 2.3.1, at the places of the elements.
    """

    method: Method = "lu"
    preconditioner: Preconditioner = "none"
    rtol: float | None = field(default=None, validator=at_least(0))
    atol: float = field(default=0.0, validator=at_least(0))
    maxiter: int | None = field(default=None, validator=at_least(1))
    restart: int = field(default=20, validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        if (self.method, self.preconditioner) == ("cg", "ilu"):
            raise ConfigError(
                "sparse.solve: cg takes a symmetric preconditioner, and ilu is none",
                hint='preconditioner="jacobi", or method="bicgstab" or "gmres" with ilu',
            )

    def prepare(
        self, data: Value, rows: Value, columns: Value, b: Value, x0: Value | None = None
    ) -> tuple[Value | None, ...]:
        data_too, b_too = promoted(data, b)
        assert b_too is not None, "promotion keeps what is there"
        start: Any = None if x0 is None else rlx.astype(x0, b_too.dtype)  # which the result does not depend on
        return data_too, rows, columns, b_too, start

    def infer(
        self, data: TensorType, rows: TensorType, columns: TensorType, b: TensorType, x0: TensorType | None = None
    ) -> TensorType:
        expect_system(data, rows, columns, b, b.shape[-2] if b.rank > 1 else 0)
        if x0 is not None:
            if self.method in DIRECT:
                raise ConfigError(
                    f"sparse.solve: {self.method} is no iteration and begins nowhere",
                    hint='leave out x0, or method="cg", "bicgstab" or "gmres"',
                )
            expect_dtype("x0", x0, (b.dtype,))
            expect_shape("x0", x0, b.shape)
        return b

    def reference(
        self,
        data: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
        b: np.ndarray,
        x0: np.ndarray | None = None,
    ) -> np.ndarray:
        x = np.empty_like(b)
        self.solve_into(x, data, rows, columns, b, x0)
        return x

    def solve_into(
        self,
        x: np.ndarray,
        data: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
        b: np.ndarray,
        x0: np.ndarray | None = None,
    ) -> None:
        """Write the solutions of all systems."""
        if b.size == 0:
            return
        systems: Any = importlib.import_module("rlx_custom_ops.sparse.systems")  # SciPy's solvers take 0.2 s to import
        wide = np.result_type(data.dtype, np.float64)
        rtol = float(np.finfo(data.dtype).eps) ** (2 / 3) if self.rtol is None else self.rtol
        n = b.shape[-2]
        for index in np.ndindex(b.shape[:-2]):
            places = expect_inside("row", rows[index], n), expect_inside("column", columns[index], n)
            a = systems.matrix(self, data[index].astype(wide), *places, n, index)
            start = None if x0 is None else x0[index].astype(wide)
            x[index] = systems.solved(self, a, b[index].astype(wide), index, rtol, start)

    def vjp(
        self, g: Value, data: Value, rows: Value, columns: Value, b: Value, x0: Value | None = None, *, y: Value
    ) -> tuple[Value | Zero, ...]:
        h = self(conjugated(data), columns, rows, g)
        d_data = -sampled(rows, columns, h, y)
        if self.method in HERMITIAN:
            d_data = 0.5 * (d_data - sampled(rows, columns, y, h))
        return d_data, ZERO, ZERO, h, ZERO

    def jvp(
        self,
        t: Sequence[Any],
        data: Value,
        rows: Value,
        columns: Value,
        b: Value,
        x0: Value | None = None,
        *,
        y: Value,
    ) -> Value | Zero:
        if isinstance(t[0], Zero):
            return ZERO if isinstance(t[3], Zero) else self(data, rows, columns, t[3])  # the start x0 has none
        moved = product(t[0], rows, columns, y)
        if self.method in HERMITIAN:
            moved = 0.5 * (moved + product(conjugated(t[0]), columns, rows, y))
        return self(data, rows, columns, -moved if isinstance(t[3], Zero) else t[3] - moved)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        data, rows, columns = x[:3]
        operands = [(v, has_batch) for v, has_batch in zip(x, is_batched, strict=True) if v is not None]
        batched = [v if has_batch else rlx.broadcast_to(v, (size, *v.shape)) for v, has_batch in operands]
        if any(is_batched[:3]) or data.ndim > 1:
            return self(*batched)
        # One matrix for many right sides is factorised once, their columns side by side.
        sides = [rlx.permute_dims(v, (1, 0, 2)) for v in batched[3:]]
        n, _, k = sides[0].shape
        solved = self(data, rows, columns, *(rlx.reshape(v, (n, size * k)) for v in sides))
        return rlx.permute_dims(rlx.reshape(solved, (n, size, k)), (1, 0, 2))

    def cost(
        self, data: TensorType, rows: TensorType, columns: TensorType, b: TensorType, x0: TensorType | None = None
    ) -> Dim:
        return (
            20 * data.size * b.shape[-1]
        )  # of an iteration that takes 10 steps; how many it takes depends on the data

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from systems()
        yield Rejected("f32[3]", "i32[2]", "i32[3]", "f32[2, 1]", error=ShapeError, says="rows must be [3]")
        yield Rejected("f32[3]", "f32[3]", "i32[3]", "f32[2, 1]", error=DtypeError, says="rows must be integers")
        yield Rejected("f32[3]", "i32[3]", "i32[3]", "f32[2]", error=ShapeError, says="b must have 2 or more axes")
        yield Rejected("f16[3]", "i32[3]", "i32[3]", "f16[2, 1]", error=DtypeError, says="not f16")
        four = ("f32[3]", "i32[3]", "i32[3]", "f32[2, 1]")
        yield Rejected(*four, method="qr", error=ConfigError, says="method must be 'lu' or 'cholesky' or 'cg'")
        yield Rejected(*four, preconditioner="amg", error=ConfigError, says="'none' or 'jacobi' or 'ilu', not 'amg'")
        yield Rejected(*four, method="cg", preconditioner="ilu", error=ConfigError, says="ilu is none")
        yield Rejected(*four, "f32[2, 1]", error=ConfigError, says="lu is no iteration and begins nowhere")
        yield Rejected(*four, "f32[2]", method="cg", error=ShapeError, says="x0 must be [2, 1]")
        yield Rejected(*four, rtol=-1.0, error=ConfigError, says="rtol must be at least 0, not -1.0")
        yield Rejected(*four, maxiter=0, error=ConfigError, says="maxiter must be at least 1, not 0")


def expect_inside(name: str, places: np.ndarray, size: int) -> np.ndarray:
    """Require places inside of a matrix.

    Raises:
        IndexRangeError: One is not.
    """
    if places.size and not 0 <= places.min() <= places.max() < size:
        worst = places.max() if places.max() >= size else places.min()
        raise IndexRangeError(f"sparse.solve: {name} {worst} is outside of a matrix of {size} {name}s")
    return places


def conjugated(x: Any) -> Any:
    return rlx.conjugate(x) if x.dtype.is_complex else x


def along_rows(x: Value, places: Value) -> Value:
    """Return the rows of each matrix with the indices in `places`."""
    leading = x.ndim - 2
    return gather(x, places, axis=leading, batch_dims=leading)


def sampled(rows: Value, columns: Value, u: Value, v: Value) -> Any:
    """The elements of u vᴴ at places of a matrix."""
    return rlx.sum(along_rows(u, rows) * conjugated(along_rows(v, columns)), axis=-1)


def product(data: Value, rows: Value, columns: Value, x: Value, size: Dim | None = None) -> Any:
    """Return the sparse matrix times x; it has `size` rows, by default as many rows as columns."""
    leading = x.ndim - 2
    products = rlx.expand_dims(data, -1) * along_rows(x, columns)
    return scatter_add(
        products, rows, axis=leading, batch_dims=leading, size=x.shape[leading] if size is None else size
    )


def solve(
    a: Csr,
    b: Any,
    x0: Any = None,
    *,
    method: Method = "lu",
    preconditioner: Preconditioner = "none",
    rtol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    restart: int = 20,
) -> Any:
    """The x with a x = b, for b [n] or [n, k]; see `SparseSolve` for the arguments.

    An iteration begins at `x0`, which is like b: near the solution it ends sooner.

    >>> a = Csr(np.array([4.0, 1.0, 1.0, 3.0]), [0, 1, 0, 1], [0, 2, 4], shape=(2, 2))
    >>> np.round(solve(a, np.array([6.0, 7.0])), 12)
    array([1., 2.])
    """
    n = a.shape[0]
    if a.shape[1] != n:
        raise ShapeError(f"sparse.solve: a must be square, not {list(a.shape)}")
    b = b if isinstance(b, Value) else np.asarray(b)
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ShapeError(f"sparse.solve: b must be [{n}] or [{n}, k], not {list(b.shape)}")
    op = SparseSolve(method, preconditioner, rtol, atol, maxiter, restart)
    sides = [b]
    if x0 is not None:
        sides.append(x0 if isinstance(x0, Value) else np.asarray(x0))
        if tuple(sides[1].shape) != tuple(b.shape):
            raise ShapeError(f"sparse.solve: x0 must be {list(b.shape)}, as b is, not {list(sides[1].shape)}")
    columns = (v if b.ndim == 2 else rlx.expand_dims(v, -1) for v in sides)
    x = op(a.data, a.pattern.rows, a.pattern.columns, *columns)
    return x if b.ndim == 2 else rlx.squeeze(x, axis=-1)


def cg(a: Csr, b: Any, x0: Any = None, *, preconditioner: Preconditioner = "none", **settings: Any) -> Any:
    """Conjugate gradients, for Hermitian positive definite matrices; with a preconditioner, PCG. See `solve`."""
    return solve(a, b, x0, method="cg", preconditioner=preconditioner, **settings)


def bicgstab(a: Csr, b: Any, x0: Any = None, *, preconditioner: Preconditioner = "none", **settings: Any) -> Any:
    """Stabilised biconjugate gradients, for any square matrix. See `solve`."""
    return solve(a, b, x0, method="bicgstab", preconditioner=preconditioner, **settings)


def gmres(
    a: Csr, b: Any, x0: Any = None, *, preconditioner: Preconditioner = "none", restart: int = 20, **settings: Any
) -> Any:
    """Generalised minimal residuals, for any square matrix. See `solve`."""
    return solve(a, b, x0, method="gmres", preconditioner=preconditioner, restart=restart, **settings)


OPS = (SparseSolve,)

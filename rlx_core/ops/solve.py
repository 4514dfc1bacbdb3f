"""Dense linear systems: one, and a stack of them.

The rank alone determines the interpretation of a right side: with one axis fewer than the matrix it is a vector. A singular
matrix gives NaN, as in compiled code, because a reference that raises would make values depend on the backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import COMPLEXES, f32, f64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, Zero, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype, expect_rank, expect_shape, same_dim
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import adjoint, mat_mul, operand
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched, expand, joint_batch, reshape, transpose

SOLVABLE = (f32, f64, *COMPLEXES)


def well_conditioned(*dims: tuple[int, ...], is_complex: bool = False) -> Callable[..., Sequence[np.ndarray]]:
    """Return sample arrays: first a diagonally dominant matrix, then a right side."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        drawn = [rng.uniform(-1, 1, d) + (1j * rng.uniform(-1, 1, d) if is_complex else 0) for d in dims]
        return [drawn[0] + 3 * np.eye(dims[0][-1]), *drawn[1:]]

    return make


class SystemSolve(Op):
    """Base of the ops for one system and a stack of them: `x = a⁻¹ b`, by LU with pivoting."""

    category: ClassVar = "boundary"
    most_axes: ClassVar[int | None] = None
    """The maximum number of axes of `a`."""

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_rank("a", a, 2, self.most_axes)
        expect_dtype("a", a, SOLVABLE)
        if b.dtype is not a.dtype:
            raise DtypeError(f"operands must have one dtype, not {a.dtype} and {b.dtype}")
        if not same_dim(a.shape[-1], a.shape[-2]):
            raise ShapeError(f"a must be square, not {a}")
        expect_rank("b", b, a.rank - 1, a.rank)
        columns = b.shape[a.rank - 1 :]
        expect_shape("b", b, (*a.shape[:-1], *columns))
        return b

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the solution, with NaN in singular slices, which LAPACK refuses: all slices are solved one by one then."""
        columns = b[..., None] if b.ndim == a.ndim - 1 else b
        try:
            x = np.linalg.solve(a, columns)
        except np.linalg.LinAlgError:
            x = np.full_like(columns, np.nan)
            for index in np.ndindex(a.shape[:-2]):
                with contextlib.suppress(np.linalg.LinAlgError):
                    x[index] = np.linalg.solve(a[index], columns[index])
        return x.reshape(b.shape)

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, ...]:
        # db = a⁻ᴴ g and da = -db yᴴ.
        db = self(adjoint(a), g)
        is_vector = y.ndim == a.ndim - 1
        column, row = (reshape(v, (*v.shape, 1)) if is_vector else v for v in (db, y))
        return -mat_mul(column, adjoint(row)), db

    def jvp(self, t: Sequence[Any], a: Value, b: Value, *, y: Value) -> Any:
        # a⁻¹ (t_b - t_a y).
        t_a, t_b = t
        if isinstance(t_a, Zero):
            return self(a, t_b)
        is_vector = y.ndim == a.ndim - 1
        moved = mat_mul(t_a, reshape(y, (*y.shape, 1)) if is_vector else y)
        moved = reshape(moved, y.shape) if is_vector else moved
        return self(a, -moved if isinstance(t_b, Zero) else t_b - moved)

    def cost(self, a: TensorType, b: TensorType) -> Dim:
        return a.size * a.shape[-1] + 2 * a.shape[-1] * b.size


@define_op
class DenseSolve(SystemSolve):
    """The solution of one linear system by LU with pivoting, `x = a⁻¹ b`. NaN where `a` is singular.

    Shapes:
        a: [n, n]    b: [n] or [n, k]    ->    x: the dims of b
    """

    most_axes: ClassVar = 2

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        a, b = x
        if is_batched[0]:
            return batched_dense_solve(*all_batched(size, x, is_batched))
        # One factorisation: the batch becomes further columns of the right side.
        columns = transpose(b, (1, 0, *range(2, b.ndim)))
        solved = self(a, reshape(columns, (b.shape[1], -1)))
        return transpose(reshape(solved, columns.shape), (1, 0, *range(2, b.ndim)))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in SOLVABLE:
            make = well_conditioned((3, 3), (3, 2), is_complex=d.is_complex)
            yield Sample(f"{d}[3, 3]", f"{d}[3, 2]", make=make)
        yield Sample("f64[4, 4]", "f64[4]", make=well_conditioned((4, 4), (4,)))
        yield Sample("f32[1, 1]", "f32[1]", make=well_conditioned((1, 1), (1,)))
        yield Sample("f32[3, 3]", "f32[3, 0]", make=well_conditioned((3, 3), (3, 0)))
        yield Rejected("f32[3, 2]", "f32[3]", error=ShapeError, says="square")
        yield Rejected("f32[3, 3]", "f32[4]", error=ShapeError, says="b must be [3]")
        yield Rejected("f16[3, 3]", "f16[3]", error=DtypeError, says="not f16")


dense_solve = op_function(DenseSolve)


@define_op
class BatchedDenseSolve(SystemSolve):
    """The solutions of a stack of linear systems. NaN in every slice whose matrix is singular.

    Shapes:
        a: [..., n, n]    b: [..., n] or [..., n, k]    ->    x: the dims of b
    """

    batch = joint_batch

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in SOLVABLE:
            make = well_conditioned((2, 3, 3), (2, 3, 2), is_complex=d.is_complex)
            yield Sample(f"{d}[2, 3, 3]", f"{d}[2, 3, 2]", make=make)
        yield Sample("f64[2, 2, 3, 3]", "f64[2, 2, 3]", make=well_conditioned((2, 2, 3, 3), (2, 2, 3)))
        yield Sample("f64[0, 3, 3]", "f64[0, 3]", make=well_conditioned((0, 3, 3), (0, 3)))
        yield Rejected("f32[2, 3, 3]", "f32[3, 3]", error=ShapeError, says="b must be [2, 3]")
        yield Rejected("f32[2, 3, 4]", "f32[2, 3]", error=ShapeError, says="square")


batched_dense_solve = op_function(BatchedDenseSolve)


@checked_call
def solve(a: Any, b: Any) -> Any:
    """The solution of `a x = b`, as in the Array API: `b` with one axis is a vector, with more it is a stack of matrices.

    Leading axes broadcast.
    """
    a, b = operand(a), operand(b)
    expect_matrix(a)
    if a.ndim == 2 and b.ndim <= 2:
        return dense_solve(a, b)
    columns = reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    leading = broadcast_shapes(tuple(a.shape[:-2]), tuple(columns.shape[:-2]))
    x = batched_dense_solve(*(repeated(v, (*leading, *v.shape[-2:])) for v in (a, columns)))
    return reshape(x, tuple(x.shape[:-1])) if b.ndim == 1 else x


def expect_matrix(a: Any) -> None:
    """Require at least two axes.

    Raises:
        ShapeError: There are fewer.
    """
    if a.ndim < 2:
        raise ShapeError(f"solve: a must have 2 or more axes, not {a.ndim}")


def repeated(x: Any, shape: tuple[Dim, ...]) -> Any:
    """Return `x` broadcast to `shape`, without a node if it has this shape."""
    return x if tuple(x.shape) == shape else expand(x, shape)

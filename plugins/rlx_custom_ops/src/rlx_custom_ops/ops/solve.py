"""General square systems, by LU with partial pivoting, and the inverse, which is one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, Zero, define_op, op_function, promoted
from rlx_custom_ops.errors import singular
from rlx_custom_ops.ops.matrices import (
    adjoint,
    batched_solve,
    expect_square,
    finite,
    free_leading_axes,
    infer_system,
    of_systems,
)
from rlx_custom_ops.ops.samples import samples_of, well_conditioned

__rlx_library__ = True


@define_op(domain="linalg")
class Solve(Op):
    """The x with a x = b.

    A NaN or an infinity in a matrix makes its solutions NaN.

    Shapes:
        a: [..., n, n]    b: [..., n, k]    ->    x: [..., n, k]

    Raises:
        SingularMatrixError: When the program runs, if a pivot is exactly 0. (`rlx_core.solve` gives NaN there.)

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 2.3.1.
    """

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        return infer_system(a, b)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = np.empty_like(b)
        for index in finite(a, x):
            try:
                x[index] = np.linalg.solve(a[index], b[index])
            except np.linalg.LinAlgError:
                raise singular("solve", index, a[index]) from None
        return x

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> Any:
        db = self(adjoint(a), g)
        return -rlx.matmul(db, adjoint(y)), db

    def jvp(self, t: Sequence[Any], a: Value, b: Value, *, y: Value) -> Any:
        t_a, t_b = t
        if isinstance(t_a, Zero):
            return self(a, t_b)
        moved = rlx.matmul(t_a, y)
        return self(a, -moved if isinstance(t_b, Zero) else t_b - moved)

    batch = batched_solve

    def cost(self, a: TensorType, b: TensorType) -> Dim:
        return a.size * a.shape[-1] + 2 * a.shape[-1] * b.size  # 2/3 n³ for the factors, rounded up

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "3 3, 3 2", "2 3 3, 2 3 1", "2 1 2 2, 2 1 2 1", "0 3 3, 0 3 2")
        yield Rejected("f32[2, 3]", "f32[2, 1]", error=ShapeError, says="a must be square")
        yield Rejected("f32[2, 2]", "f32[3, 1]", error=ShapeError, says="b must be [2, 1], not f32[3, 1]")
        yield Rejected("f32[3, 2, 2]", "f32[4, 2, 1]", error=ShapeError, says="b must be [3, 2, 1], not f32[4, 2, 1]")
        yield Rejected("bf16[2, 2]", "bf16[2, 1]", error=DtypeError, says="not bf16")


_solve = op_function(Solve)


def solve(a: Any, b: Any) -> Any:
    """The x with a x = b; see `Solve`. Leading dims broadcast, and a `b` with one axis is one
    column, as in the Array API.

    >>> import numpy as np
    >>> solve(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0]))
    Array([1., 1.])
    """
    return of_systems(_solve, a, b)


@define_op(domain="linalg")
class Inverse(Op):
    """The inverse of a square matrix: the solution for the identity. To solve a system, `solve` is faster and closer.

    Shapes:
        a: [..., n, n]    ->    y: [..., n, n]

    Raises:
        SingularMatrixError: When the program runs, if `a` has none.

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 2.2.3.
    """

    def infer(self, a: TensorType) -> TensorType:
        expect_square("a", a)
        return a

    def decompose(self, a: Value) -> Value:
        return _solve(a, rlx.broadcast_to(rlx.eye(a.shape[-1], dtype=a.dtype), a.shape))

    def vjp(self, g: Value, a: Value, *, y: Value) -> Any:
        # Two products, where differentiating `decompose` solves a system and multiplies.
        return (-rlx.matmul(rlx.matmul(adjoint(y), g), adjoint(y)),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: Value) -> Any:
        return -rlx.matmul(rlx.matmul(y, t[0]), y)

    batch = free_leading_axes

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "3 3", "2 3 3", "1 1", "0 3 3")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


inverse = op_function(Inverse)

OPS = (Solve, Inverse)

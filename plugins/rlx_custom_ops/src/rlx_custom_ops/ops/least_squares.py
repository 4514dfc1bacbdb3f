"""Systems of any shape and rank: the pseudoinverse, and the shortest of the closest solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import Attribute

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops import (
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    Zero,
    define_op,
    expect_dtype,
    expect_shape,
    field,
    matmul,
    op_function,
    promoted,
    where,
)
from rlx_custom_ops.ops.matrices import (
    EPSILON,
    adjoint,
    expect_matrix,
    free_leading_axes,
    least_dim,
    of_systems,
    present,
    rows,
)
from rlx_custom_ops.ops.samples import samples_of, well_conditioned
from rlx_custom_ops.ops.svd import svd

__rlx_library__ = True


def non_negative(op: Op, attribute: Attribute[Any], value: float | None) -> None:
    """A validator: a tolerance is a number of at least 0, or `None` for the default."""
    if value is not None and not value >= 0:
        raise ShapeError(f"{op.name}: rtol must be at least 0, not {value}")


def expect_tolerance(rtol: float | None, a: TensorType) -> None:
    """Require that the default tolerance can be computed.

    Raises:
        ShapeError: It needs a size that is still a symbol.
    """
    least_dim(a)
    if rtol is None and not all(isinstance(d, int) for d in a.shape[-2:]):
        raise ShapeError(f"rtol must be given where sizes are unknown, as in {a}")


def inverse_values(s: Any, rtol: float | None, a: Any) -> Any:
    """1 / s, and 0 for singular values that are 0 within the tolerance."""
    relative = EPSILON[a.dtype] * max(a.shape[-2:]) if rtol is None else rtol
    is_zero = s <= relative * s[..., :1]
    return where(is_zero, 0.0, 1.0 / where(is_zero, 1.0, s))


@define_op(domain="linalg")
class Pinv(Op):
    """The Moore-Penrose pseudoinverse: of all p with the least ‖a p - 1‖, the one with the least ‖p‖.

    Its derivative holds while the rank does not change; where it does, the pseudoinverse jumps and has none.

    Shapes:
        a: [..., m, n]    ->    p: [..., n, m]

    Attributes:
        rtol: Singular values up to `rtol` times the largest count as 0; `None` is max(m, n) ε.

    Source:
        The derivatives: Golub & Pereyra 1973, "The differentiation of pseudo-inverses and nonlinear least squares problems
        whose variables separate", SIAM J. Numer. Anal. 10, equation 4.12. No difference of singular values occurs in them,
        so equal singular values do no harm.
    """

    rtol: float | None = field(default=None, validator=non_negative)

    def infer(self, a: TensorType) -> TensorType:
        expect_matrix("a", a)
        expect_tolerance(self.rtol, a)
        return a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2]))

    def decompose(self, a: Value) -> Value:
        u, s, vh = svd(a)
        return matmul(adjoint(vh) * rows(inverse_values(s, self.rtol, a)), adjoint(u))

    def vjp(self, g: Value, a: Value, *, y: Value) -> tuple[Value, ...]:
        # -pᴴ g pᴴ + (1 - a p) gᴴ p pᴴ + pᴴ p gᴴ (1 - p a)
        p_h, g_h = adjoint(y), adjoint(g)
        right = matmul(matmul(g_h, y), p_h)
        left = matmul(matmul(p_h, y), g_h)
        return (
            -matmul(matmul(p_h, g), p_h) + (right - matmul(a, matmul(y, right))) + (left - matmul(matmul(left, y), a)),
        )

    def jvp(self, t: Sequence[Any], a: Value, *, y: Value) -> Value | Zero:
        # -p ȧ p + p pᴴ ȧᴴ (1 - a p) + (1 - p a) ȧᴴ pᴴ p
        p_h, t_h = adjoint(y), adjoint(t[0])
        left = matmul(matmul(y, p_h), t_h)
        right = matmul(matmul(t_h, p_h), y)
        return -matmul(matmul(y, t[0]), y) + (left - matmul(matmul(left, a), y)) + (right - matmul(y, matmul(a, right)))

    batch = free_leading_axes

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "4 3", "3 3", "2 4 2", "0 3 3")
        for dims in ("2 3", "2 2 4"):
            yield from samples_of(well_conditioned, dims)
        yield Rejected("f32[3]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[2, 2]", rtol=-1.0, error=ShapeError, says="rtol must be at least 0, not -1.0")
        yield Rejected("f32[n, n]", error=ShapeError, says="rtol must be given")


pinv = op_function(Pinv)


@define_op(domain="linalg")
class Lstsq(Op):
    """The x that makes ‖a x - b‖ least in every column, and of those the shortest: `pinv(a) b`, without forming it.

    Its derivative holds while the rank does not change.

    Shapes:
        a: [..., m, n]    b: [..., m, k]    ->    x: [..., n, k]

    Attributes:
        rtol: Singular values up to `rtol` times the largest count as 0; `None` is max(m, n) ε.

    Source:
        The derivatives: Golub & Pereyra 1973, as for `Pinv`, applied to `b`.
    """

    rtol: float | None = field(default=None, validator=non_negative)

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_matrix("a", a)
        expect_tolerance(self.rtol, a)
        expect_matrix("b", b)
        expect_dtype("b", b, (a.dtype,))
        expect_shape("b", b, (*a.shape[:-1], b.shape[-1]))
        return b.with_shape((*a.shape[:-2], a.shape[-1], b.shape[-1]))

    def decompose(self, a: Value, b: Value) -> Value:
        u, s, vh = svd(a)
        return matmul(adjoint(vh) * rows(inverse_values(s, self.rtol, a)), matmul(adjoint(u), b))

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, ...]:
        # With r = b - a x and h = pᴴ g:  db = h,  da = -h xᴴ + r hᴴ pᴴ + pᴴ x gᴴ (1 - p a)
        p = pinv(a, rtol=self.rtol)
        p_h = adjoint(p)
        residual, h = b - matmul(a, y), matmul(p_h, g)
        null = matmul(matmul(p_h, y), adjoint(g))
        da = -matmul(h, adjoint(y)) + matmul(residual, matmul(adjoint(h), p_h)) + (null - matmul(matmul(null, p), a))
        return da, h

    def jvp(self, t: Sequence[Any], a: Value, b: Value, *, y: Value) -> Value | Zero:
        # p (ḃ - ȧ x) + p pᴴ ȧᴴ r + (1 - p a) ȧᴴ pᴴ x
        p = pinv(a, rtol=self.rtol)
        if isinstance(t[0], Zero):
            return matmul(p, t[1])
        p_h, t_h = adjoint(p), adjoint(t[0])
        residual = b - matmul(a, y)
        null = matmul(t_h, matmul(p_h, y))
        return (
            matmul(p, present(t[1], b) - matmul(t[0], y))
            + matmul(p, matmul(p_h, matmul(t_h, residual)))
            + (null - matmul(p, matmul(a, null)))
        )

    batch = free_leading_axes

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(
            well_conditioned, "4 3, 4 2", "3 3, 3 1", "2 4 2, 2 4 1", "2 1 2 2, 2 1 2 1", "0 3 3, 0 3 2"
        )
        for dims in ("2 3, 2 2", "2 2 4, 2 2 1"):
            yield from samples_of(well_conditioned, dims)
        yield Rejected("f32[3, 2]", "f32[2, 1]", error=ShapeError, says="b must be [3, 1], not f32[2, 1]")
        yield Rejected("i32[3, 2]", "i32[3, 1]", error=DtypeError, says="not i32")


_lstsq = op_function(Lstsq)


def lstsq(a: Any, b: Any, *, rtol: float | None = None) -> Any:
    """The shortest x that makes ‖a x - b‖ least; see `Lstsq`. Leading dims broadcast; a `b` with one axis is one
    column.

    >>> import numpy as np
    >>> lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])).round(6)
    Array([2.])
    """
    return of_systems(lambda a, b: _lstsq(a, b, rtol=rtol), a, b)


OPS = (Pinv, Lstsq)

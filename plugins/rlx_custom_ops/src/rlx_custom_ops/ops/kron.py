"""The Kronecker product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops import (
    Dim,
    Op,
    Rejected,
    Sample,
    TensorType,
    Value,
    broadcast_shapes,
    define_op,
    expand_dims,
    expect_dtype,
    expect_shape,
    op_function,
    promoted,
    reshape,
)
from rlx_custom_ops.ops.matrices import expect_matrix, free_leading_axes, repeated
from rlx_custom_ops.ops.samples import anything, samples_of

__rlx_library__ = True


@define_op(domain="linalg")
class Kron(Op):
    """Every element of `a` times the whole of `b`: y[i p + k, j q + l] = a[i, j] b[k, l].

    Shapes:
        a: [..., m, n]    b: [..., p, q]    ->    y: [..., m p, n q]
    """

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_matrix("a", a)
        expect_matrix("b", b)
        expect_dtype("b", b, (a.dtype,))
        expect_shape("b", b, (*a.shape[:-2], *b.shape[-2:]))
        return a.with_shape((*a.shape[:-2], a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]))

    def decompose(self, a: Value, b: Value) -> Any:
        every_pair = expand_dims(a, (-3, -1)) * expand_dims(b, (-4, -2))
        return reshape(every_pair, self.infer(a.type, b.type).shape)

    batch = free_leading_axes

    def cost(self, a: TensorType, b: TensorType) -> Dim:
        return a.size * b.shape[-1] * b.shape[-2]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(anything, "2 3, 4 2", "2 2 2, 2 3 1", "2 1 2 2, 2 1 2 1", "0 2, 3 3", "1 1, 0 0")
        yield Rejected("f32[2]", "f32[2, 1]", error=ShapeError, says="a must have 2 or more axes")
        yield Rejected("f32[3, 2, 2]", "f32[2, 1]", error=ShapeError, says="b must be [3, 2, 1], not f32[2, 1]")
        yield Rejected("i64[2, 2]", "i64[2, 1]", error=DtypeError, says="not i64")


_kron = op_function(Kron)


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product of matrices; see `Kron`. Leading dims broadcast.

    >>> kron(np.eye(2), np.array([[1.0, 2.0]]))
    Array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]])
    """
    a, b = (x if isinstance(x, Value) else np.asarray(x) for x in (a, b))
    if min(a.ndim, b.ndim) >= 2:
        leading = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
        a, b = (repeated(x, (*leading, *x.shape[-2:])) for x in (a, b))
    return _kron(a, b)


OPS = (Kron,)

"""Dense products: `MatMul`, the general contraction, and the Array API functions built from them.

`MatMul` is the primitive: the last two axes multiply, all others broadcast. Every other product defines which axes of its
operands take these roles and moves them there with transposes, which stay views for backends that take strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import AxisError, ConfigError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array, op_function
from rlx_core.ir.array import HostArray
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, INTEGERS, DType, f32, i32
from rlx_core.ir.graph import Value, ambient_builder
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import (
    Shape,
    TensorType,
    broadcast_shapes,
    expect_dtype,
    expect_rank,
    normalize_axes,
    normalize_axis,
    same_dim,
)
from rlx_core.ops.arguments import listed, whole
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.conversion import as_dtype, bilinear_jvp, conjugate
from rlx_core.ops.kinds import conjugate_if_complex, elementwise_batch, is_complex, promoted
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import reshape, sum_axes, sum_to, transpose
from rlx_core.ops.validators import optional_dtype

NUMERIC = (*INTEGERS, *FLOATS, *COMPLEXES)


def product_dtype(a: TensorType, b: TensorType, acc_dtype: DType | None) -> DType:
    """Return the dtype of a product: the operands' dtype, or the requested wider one of the same kind."""
    expect_dtype("a", a, NUMERIC, "numeric")
    if b.dtype is not a.dtype:
        raise DtypeError(f"operands must have one dtype, not {a.dtype} and {b.dtype}")
    if acc_dtype is None:
        return a.dtype
    is_wider = acc_dtype.itemsize >= a.dtype.itemsize and acc_dtype.is_integer == a.dtype.is_integer
    if not is_wider or acc_dtype.is_complex != a.dtype.is_complex or not acc_dtype.is_numeric:
        raise DtypeError(f"acc_dtype {acc_dtype} cannot hold products of {a.dtype}")
    return acc_dtype


def swap_last(x: Value) -> Value:
    """Return the matrix transpose of the last two axes."""
    return transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Value) -> Value:
    """Return the conjugate transpose of the last two axes."""
    return conjugate_if_complex(swap_last(x))


@define_op(name="matmul")
class MatMul(Op):
    """The matrix product of the last two axes; the other axes are batch axes and broadcast.

    f16 and bf16 accumulate in f32 and round once; integers are exact modulo 2^bits.

    Shapes:
        a: [..., m, k]    b: [..., k, n]    ->    y: [..., m, n]

    Attributes:
        acc_dtype: A wider dtype of the same kind for the sums and the result (such as i32 for i8 products).

    Raises:
        ShapeError: An operand has fewer than two axes, the contracted dims differ, or the batch dims do not broadcast.
    """

    category: ClassVar = "compute"
    acc_dtype: DType | None = field(default=None, converter=optional_dtype)
    jvp = bilinear_jvp
    batch = elementwise_batch

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_rank("a", a, 2)
        expect_rank("b", b, 2)
        dtype = product_dtype(a, b, self.acc_dtype)
        if not same_dim(a.shape[-1], b.shape[-2]):
            raise ShapeError(
                f"contracted dims differ ({a.shape[-1]} != {b.shape[-2]})", hint=transposed_operand_hint(a, b)
            )
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return TensorType(dtype, (*batch, a.shape[-2], b.shape[-1]))

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if self.acc_dtype is not None:
            wide = np.promote_types(a.dtype, self.acc_dtype.accumulator.numpy)
            a, b = a.astype(wide), b.astype(wide)
        return np.matmul(a, b)

    def loop_form(self, a: Value, b: Value) -> Value:
        result = self.infer(a.type, b.type).dtype
        a, b = (as_dtype(x, result.accumulator) for x in (a, b))
        rows = reshape(a, (*a.shape, 1))  # [..., m, k, 1]
        columns = reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))  # [..., 1, k, n]
        terms = multiply(rows, columns)
        return as_dtype(sum_axes(terms, axes=(terms.ndim - 2,)), result)

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Value, ...]:
        da = matmul(g, adjoint(b))
        if a.ndim > 2 and b.ndim == 2:
            # One product over all rows: a product per batch entry would store [..., k, n] only to sum it.
            rows, g_rows = merge_leading(a), merge_leading(g)
            db = matmul(adjoint(rows), g_rows)
        else:
            db = matmul(adjoint(a), g)
        return tuple(as_dtype(sum_to(d, v.shape), v.dtype) for d, v in ((da, a), (db, b)))

    def cost(self, a: TensorType, b: TensorType) -> Dim:
        return 2 * self.infer(a, b).size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in NUMERIC:
            yield Sample(f"{d}[3, 4]", f"{d}[4, 2]")
        yield Sample("f32[2, 1, 3, 4]", "f32[5, 4, 2]")
        yield Sample("f32[2, 5, 3]", "f32[3, 4]")
        yield Sample("f32[5, 3]", "f32[2, 3, 4]")
        yield Sample("c64[2, 2, 3]", "c64[3, 2]")
        yield Sample("i8[3, 40]", "i8[40, 2]", acc_dtype=i32, low=-127.0, high=127.0)
        yield Sample("f16[3, 4]", "f16[4, 2]", acc_dtype=f32)
        yield Sample("f32[3, 0]", "f32[0, 2]")
        yield Sample("f32[0, 3]", "f32[3, 2]")
        yield Rejected("f32[3, 4]", "f32[5, 2]", error=ShapeError, says="4 != 5")
        yield Rejected("f32[4]", "f32[4, 2]", error=ShapeError, says="2 or more axes")
        yield Rejected("f32[2, 3, 4]", "f32[5, 4, 2]", error=ShapeError, says="do not broadcast")
        yield Rejected("bool[3, 4]", "bool[4, 2]", error=DtypeError, says="numeric")
        yield Rejected("f32[3, 4]", "f32[4, 2]", acc_dtype=i32, error=DtypeError, says="cannot hold")


mat_mul = op_function(MatMul)


def transposed_operand_hint(a: TensorType, b: TensorType) -> str | None:
    """Return the hint for a product that would fit with one operand transposed."""
    if a.shape[-1] == b.shape[-1]:
        return (
            f"b looks transposed: {b.with_shape((*b.shape[:-2], b.shape[-1], b.shape[-2]))} would fit; try `a @ b.mT`"
        )
    if a.shape[-2] == b.shape[-2]:
        return (
            f"a looks transposed: {a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2]))} would fit; try `a.mT @ b`"
        )
    return None


def merge_leading(x: Value) -> Value:
    """Return `[..., d]` as `[product of the leading dims, d]`."""
    return reshape(x, (product(x.shape[:-1]), x.shape[-1]))


@define_op
class DotGeneral(Op):
    """The contraction of any axes of `lhs` with the same number of axes of `rhs`, batched over further pairs of axes.

    The result's axes are the batch axes, then the free axes of `lhs`, then those of `rhs`, each in operand order
    (batch axes in the order of `lhs_batch`).

    Attributes:
        lhs_contracting, rhs_contracting: The contracted axes, in pairs.
        lhs_batch, rhs_batch: The batch axes, in pairs.
        acc_dtype: As in `MatMul`.

    Raises:
        AxisError: An axis is outside its operand, or is listed twice.
        ShapeError: A pair has different dims, or a list has another length than its partner.
    """

    category: ClassVar = "compute"
    lhs_contracting: tuple[int, ...] = field(default=(), converter=tuple)
    rhs_contracting: tuple[int, ...] = field(default=(), converter=tuple)
    lhs_batch: tuple[int, ...] = field(default=(), converter=tuple)
    rhs_batch: tuple[int, ...] = field(default=(), converter=tuple)
    acc_dtype: DType | None = field(default=None, converter=optional_dtype)

    def prepare(self, lhs: Value, rhs: Value) -> tuple[Value | None, ...]:
        return promoted(lhs, rhs)

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        dtype = product_dtype(lhs, rhs, self.acc_dtype)
        self._check_pairs(lhs, rhs)
        batch, l_free, _ = self._roles(lhs.rank, self.lhs_batch, self.lhs_contracting)
        _, r_free, _ = self._roles(rhs.rank, self.rhs_batch, self.rhs_contracting)
        return TensorType(dtype, (*pick(lhs.shape, (*batch, *l_free)), *pick(rhs.shape, r_free)))

    def decompose(self, lhs: Value, rhs: Value) -> Value:
        batch, l_free, l_sum = self._roles(lhs.ndim, self.lhs_batch, self.lhs_contracting)
        r_batch, r_free, r_sum = self._roles(rhs.ndim, self.rhs_batch, self.rhs_contracting)
        batch_dims, m_dims = pick(lhs.shape, batch), pick(lhs.shape, l_free)
        k, n_dims = product(pick(lhs.shape, l_sum)), pick(rhs.shape, r_free)
        a = reshaped(permuted(lhs, (*batch, *l_free, *l_sum)), (*batch_dims, product(m_dims), k))
        b = reshaped(permuted(rhs, (*r_batch, *r_sum, *r_free)), (*batch_dims, k, product(n_dims)))
        return reshaped(mat_mul(a, b, acc_dtype=self.acc_dtype), (*batch_dims, *m_dims, *n_dims))

    def cost(self, lhs: TensorType, rhs: TensorType) -> Dim:
        summed = pick(lhs.shape, [normalize_axis(a, lhs.rank) for a in self.lhs_contracting])
        return 2 * self.infer(lhs, rhs).size * product(summed)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[4, 2]", lhs_contracting=(1,), rhs_contracting=(0,))
        yield Sample("f64[2, 3, 4]", "f64[4, 5, 2]", lhs_contracting=(2,), rhs_contracting=(0,), lhs_batch=(0,),
                     rhs_batch=(2,))  # fmt: skip
        yield Sample("f32[2, 3, 4]", "f32[5, 4, 3]", lhs_contracting=(2, 1), rhs_contracting=(1, 2))
        yield Sample("c64[2, 3]", "c64[4, 3]", lhs_contracting=(-1,), rhs_contracting=(-1,))
        yield Sample("f32[2]", "f32[3]")
        yield Sample("f32[2, 3]", "f32[2, 3]", lhs_batch=(0, 1), rhs_batch=(0, 1))
        yield Sample("i8[2, 9]", "i8[9]", lhs_contracting=(1,), rhs_contracting=(0,), acc_dtype=i32)
        yield Sample("f32[2, 0]", "f32[0, 3]", lhs_contracting=(1,), rhs_contracting=(0,))
        yield Rejected(
            "f32[3, 4]", "f32[4]", lhs_contracting=(0,), rhs_contracting=(0,), error=ShapeError, says="3 != 4"
        )
        yield Rejected("f32[3]", "f32[3]", lhs_contracting=(0,), error=ShapeError, says="1 and 0")
        yield Rejected("f32[3]", "f32[3]", lhs_contracting=(0,), rhs_contracting=(1,), error=AxisError, says="outside")
        yield Rejected("f32[3, 3]", "f32[3, 3]", lhs_contracting=(0,), rhs_contracting=(0,), lhs_batch=(0,),
                       rhs_batch=(1,), error=AxisError, says="twice")  # fmt: skip

    def _check_pairs(self, lhs: TensorType, rhs: TensorType) -> None:
        pairs = (("contracting", self.lhs_contracting, self.rhs_contracting), ("batch", self.lhs_batch, self.rhs_batch))
        for role, l_axes, r_axes in pairs:
            if len(l_axes) != len(r_axes):
                raise ShapeError(f"{role} axes come in pairs, not {len(l_axes)} and {len(r_axes)}")
            for i, j in zip(l_axes, r_axes, strict=True):
                m, n = lhs.shape[normalize_axis(i, lhs.rank)], rhs.shape[normalize_axis(j, rhs.rank)]
                if not same_dim(m, n):
                    raise ShapeError(f"{role} dims differ ({m} != {n}) at axes {i} and {j}")

    @staticmethod
    def _roles(rank: int, batch: Sequence[int], summed: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        normalize_axes((*batch, *summed), rank)
        own_batch, own_sum = ([normalize_axis(a, rank) for a in axes] for axes in (batch, summed))
        free = [a for a in range(rank) if a not in own_batch and a not in own_sum]
        return own_batch, free, own_sum


dot_general = op_function(DotGeneral)


def pick(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the dims of `shape` at `axes`, in that order."""
    return tuple(shape[a] for a in axes)


def permuted(x: Value, perm: Sequence[int]) -> Value:
    """Return `x` with its axes permuted, without a node for the identity."""
    return x if tuple(perm) == tuple(range(x.ndim)) else transpose(x, tuple(perm))


def reshaped(x: Value, shape: Shape) -> Value:
    """Return `x` with other dims, without a node if it has them."""
    return x if x.shape == shape else reshape(x, shape)


# ----------------------------------------------------------------------------- the Array API's functions


def operand(x: Any) -> Any:
    """Return an operand whose rank is known: a value unchanged, anything else as an rlx array."""
    if isinstance(x, Value):
        return x
    # In a program, the properties of an array are known now: its operators are NumPy's, and do not return values.
    return HostArray(as_array(x)) if ambient_builder() is None else as_array(x)


@checked_call
def matmul(a: Any, b: Any, *, acc_dtype: DType | None = None) -> Any:
    """Python's `a @ b`: as in NumPy, a vector on the left is a row, one on the right a column, and the axis is then removed.

    >>> matmul(np.ones((2, 3), np.float32), np.ones(3, np.float32))
    Array([3., 3.], dtype=float32)
    """
    a, b = operand(a), operand(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError("matmul: takes operands with at least one axis, not a scalar", hint="use `*` to scale")
    left = reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
    right = reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    y = mat_mul(left, right, acc_dtype=acc_dtype)
    shape = y.shape if b.ndim > 1 else y.shape[:-1]
    if a.ndim == 1:
        shape = (*shape[:-2], shape[-1]) if b.ndim > 1 else shape[:-1]
    return y if tuple(shape) == tuple(y.shape) else reshape(y, tuple(shape))


@checked_call
def vecdot(a: Any, b: Any, *, axis: int = -1) -> Any:
    """The sum of `conj(a) * b` along one axis of both, which is not broadcast; the other axes are.

    Raises:
        ShapeError: The sizes of the axis differ, or one of the two has no such axis.
    """
    a, b = operand(a), operand(b)
    rank = max(a.ndim, b.ndim)
    from_end = normalize_axis(axis, rank) - rank
    left_size, right_size = (v.shape[from_end] if v.ndim >= -from_end else None for v in (a, b))
    if left_size is None or right_size is None or (left_size != right_size and 1 in (left_size, right_size)):
        raise ShapeError(f"vecdot: axis {axis} must have one size in both, not {list(a.shape)} and {list(b.shape)}")
    left = conjugate(a) if is_complex(a) else a
    return sum_axes(multiply(left, b), axes=(axis,))


@checked_call
def tensordot(a: Any, b: Any, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """The contraction of the last `axes` axes of `a` with the first of `b`, or of two lists of axes in pairs."""
    a, b = operand(a), operand(b)
    if isinstance(axes, int | np.integer):
        count = whole("tensordot: axes", axes)
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise AxisError(f"tensordot: {count} axes cannot be contracted of {a.ndim} and {b.ndim}")
        pairs: tuple[Any, ...] = (range(a.ndim - count, a.ndim), range(count))
    else:
        pairs = listed("tensordot: axes", axes)
    if len(pairs) != 2:
        raise ConfigError(f"tensordot: axes must be a number or two lists of axes, not {axes!r}")
    left, right = (listed("tensordot: each item of axes", p) if isinstance(p, Iterable) else (p,) for p in pairs)
    return dot_general(a, b, lhs_contracting=left, rhs_contracting=right)


@checked_call
def outer(a: Any, b: Any) -> Any:
    """The products of all pairs of elements of two vectors."""
    a, b = operand(a), operand(b)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: takes two vectors, not {a.ndim} and {b.ndim} axes")
    return dot_general(a, b)

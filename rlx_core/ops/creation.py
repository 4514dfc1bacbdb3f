"""Tensors without operands: counters, constants of any shape, identity matrices, one-hot rows, sizes as numbers.

Shapes are dims, so these ops create symbolic data: a `Constant` is static, an `Iota` or a `Full` depends on its symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array, op_function
from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import INTEGERS, DType, bf16, bool_, c64, dtype, f32, f64, i32, i64, u8, weak_dtype
from rlx_core.ir.graph import Value, ambient_builder, building
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_shape, normalize_axis
from rlx_core.ops.arguments import listed
from rlx_core.ops.conversion import cast, linear_jvp
from rlx_core.ops.device import expect_device
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import as_shape, expand, reshape, sum_axes

if TYPE_CHECKING:
    from rlx_core.typing import DTypeLike


def static(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Return dims as integers, for references; symbols are bound before a program is evaluated."""
    return tuple(d.__index__() for d in shape)


class Creation(Op):
    """An op without operands: without derivatives, and the same for every element of a batch."""

    def vjp(self, g: Value, *, y: Value) -> tuple[Value, ...]:
        return ()

    def jvp(self, t: Sequence[Any], *, y: Value) -> Zero:
        return ZERO

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        result: Value = self()
        return expand(result, (size, *result.shape))


@define_op
class DimValue(Creation):
    """A size as an i64 scalar: a factor or divisor in rules if the size is unknown."""

    category: ClassVar = "movement"
    size: Dim

    def infer(self) -> TensorType:
        return TensorType(i64)

    def reference(self) -> np.ndarray:
        return np.asarray(self.size.__index__(), np.int64)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample(size=7)
        yield Sample(size=0)
        yield Sample(size=2**53 + 1)


dim_value = op_function(DimValue)


def size_scalar(size: Dim, dtype: DType) -> Value | float:
    """Return a size as a factor of dtype `dtype`: a weak number if it is known, a cast `DimValue` otherwise."""
    return float(size) if isinstance(size, int) else cast(dim_value(size=size), to=dtype)


@define_op
class Iota(Creation):
    """The position along one axis: y[.., i, ..] = i.

    Attributes:
        axis: The axis that counts.
        shape: The dims of the result.
        dtype: Any numeric dtype; integers wrap, narrow floats round.
    """

    category: ClassVar = "movement"
    axis: int
    shape: Shape = field(converter=as_shape)
    dtype: DType = i64

    def infer(self) -> TensorType:
        if not self.dtype.is_numeric:
            raise DtypeError("dtype must be numeric, not bool")
        normalize_axis(self.axis, len(self.shape))
        return TensorType(self.dtype, self.shape)

    def reference(self) -> np.ndarray:
        shape = static(self.shape)
        axis = normalize_axis(self.axis, len(shape))
        line = np.arange(shape[axis]).astype(self.dtype.numpy)
        return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (i64, i32, u8, f32, f64, bf16, c64):
            yield Sample(axis=1, shape=(2, 5), dtype=d)
        for axis in (0, 1, 2, -1):
            yield Sample(axis=axis, shape=(2, 3, 4, 5))
        yield Sample(axis=0, shape=(0, 3))
        yield Rejected(axis=1, shape=(3,), error=AxisError, says="outside")
        yield Rejected(axis=0, shape=(3,), dtype=bool_, error=DtypeError, says="numeric")


iota = op_function(Iota)


@define_op
class Full(Op):
    """A scalar repeated over a shape.

    Shapes:
        value: []    ->    y: shape
    """

    shape: Shape = field(converter=as_shape)
    category: ClassVar = "movement"

    def infer(self, value: TensorType) -> TensorType:
        expect_shape("value", value, ())
        return value.with_shape(self.shape)

    def reference(self, value: np.ndarray) -> np.ndarray:
        return np.full(static(self.shape), value)

    def decompose(self, value: Value) -> Value:
        return expand(value, self.shape)

    def vjp(self, g: Value, value: Value, *, y: Value) -> tuple[Value, ...]:
        return (sum_axes(g, axes=tuple(range(g.ndim))),)

    jvp = linear_jvp

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        return expand(reshape(x[0], (size, *(1,) * len(self.shape))), (size, *self.shape))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64, bf16, i64, bool_, c64):
            yield Sample(f"{d}[]", shape=(2, 3))
        yield Sample("f32[]", shape=())
        yield Sample("f32[]", shape=(0, 2))
        yield Rejected("f32[1]", shape=(2,), error=ShapeError, says="value must be []")


_full = op_function(Full)


def scalar(value: complex, dtype: DType) -> np.ndarray:
    """Return a Python number as a 0-d array of dtype `dtype`.

    Raises:
        DtypeError: The number does not fit the dtype (300 in u8, 1.5 in an integer).
    """
    if weak_dtype(value, [dtype]) is not dtype:
        raise DtypeError(f"scalar: {value} does not fit {dtype}")
    return np.asarray(value, dtype.numpy)


@checked_call
def full(
    shape: Sequence[Dim] | Dim, fill_value: Any, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Any:
    """A tensor of `shape` whose elements all are `fill_value`: a number, a size, or a scalar value.

    A number alone is bool, i64, f32 or c64 by its kind.

    Raises:
        DtypeError: The number does not fit `dtype`.
    """
    expect_device("full", device)
    dims = (shape,) if isinstance(shape, int | np.integer | Expr) else listed("full: shape", shape)
    if isinstance(fill_value, Expr):
        fill_value = dim_value(size=fill_value)
    if type(fill_value) in (bool, int, float, complex):
        fill_value = scalar(fill_value, weak_dtype(fill_value) if dtype is None else _dtype(dtype))
    elif dtype is not None:
        fill_value = cast(fill_value, to=_dtype(dtype))
    return _full(fill_value, shape=dims)


_dtype = dtype


def _filled(shape: Sequence[Dim] | Dim, number: int, dtype: DTypeLike | None, device: str | None) -> Any:
    resolved = f32 if dtype is None else _dtype(dtype)
    return full(shape, bool(number) if resolved is bool_ else number, resolved, device=device)


@checked_call
def zeros(shape: Sequence[Dim] | Dim, dtype: DTypeLike | None = None, *, device: str | None = None) -> Any:
    """A tensor of zeros; of f32 unless another dtype is given."""
    return _filled(shape, 0, dtype, device)


def _shaped(x: Any) -> Any:
    """Return a value unchanged, anything else as an array: both have dims and a dtype."""
    return x if isinstance(x, Value) else as_array(x)


@checked_call
def ones(shape: Sequence[Dim] | Dim, dtype: DTypeLike | None = None, *, device: str | None = None) -> Any:
    """A tensor of ones; of f32 unless another dtype is given."""
    return _filled(shape, 1, dtype, device)


@checked_call
def full_like(x: Any, fill_value: Any, dtype: DTypeLike | None = None, *, device: str | None = None) -> Any:
    """A tensor with the dims of `x`, and its dtype unless another is given."""
    x = _shaped(x)
    resolved = _dtype(x.dtype) if dtype is None else _dtype(dtype)
    if type(fill_value) is int and resolved is bool_ and fill_value in (0, 1):
        fill_value = bool(fill_value)
    if isinstance(x, Value) and ambient_builder() is None:
        # The result belongs to the builder of `x`: otherwise it would be evaluated at once, and could not be symbolic.
        with building(x.node.owner):
            return full(x.shape, fill_value, resolved, device=device)
    return full(x.shape, fill_value, resolved, device=device)


@checked_call
def zeros_like(x: Any, dtype: DTypeLike | None = None, *, device: str | None = None) -> Any:
    """Zeros with the dims of `x`, and its dtype unless another is given."""
    return full_like(x, 0, dtype, device=device)


@checked_call
def ones_like(x: Any, dtype: DTypeLike | None = None, *, device: str | None = None) -> Any:
    """Ones with the dims of `x`, and its dtype unless another is given."""
    return full_like(x, 1, dtype, device=device)


def tangent_or_zeros(t: Value | Zero, like: Value) -> Value:
    """Return a tangent as a value: a symbolic zero becomes zeros of the primal's type."""
    return zeros_like(like) if isinstance(t, Zero) else t


@define_op
class Eye(Creation):
    """Ones on the k-th diagonal of a matrix, zeros elsewhere.

    Attributes:
        n, m: Rows and columns.
        k: The diagonal; above the main one if positive.
        dtype: Any dtype.
    """

    category: ClassVar = "movement"
    n: Dim
    m: Dim
    k: int = 0
    dtype: DType = f32

    def infer(self) -> TensorType:
        return TensorType(self.dtype, (self.n, self.m))

    def decompose(self) -> Value:
        rows, columns = (iota(axis=axis, shape=(self.n, self.m)) for axis in (0, 1))
        return cast(columns == rows + self.k, to=self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64, bf16, i64, bool_, c64):
            yield Sample(n=3, m=4, dtype=d)
        for k in (-3, -1, 2, 5):
            yield Sample(n=3, m=4, k=k)
        yield Sample(n=0, m=2)
        yield Rejected(n=-1, m=2, error=ShapeError, says="at least 0")


@define_op
class OneHot(Op):
    """`on` at the position given by each index, `off` elsewhere; an index out of range gives `off` everywhere.

    Shapes:
        indices: [..]    ->    y: [.., depth, ..]

    Attributes:
        depth: The number of positions.
        on, off: The two values.
        axis: The position of the new axis in the result.
        dtype: The dtype of the result.
    """

    category: ClassVar = "movement"
    depth: Dim
    on: float = 1.0
    off: float = 0.0
    axis: int = -1
    dtype: DType = f32

    def infer(self, indices: TensorType) -> TensorType:
        expect_dtype("indices", indices, INTEGERS, "an integer")
        scalar(_exact(self.on), self.dtype), scalar(_exact(self.off), self.dtype)
        axis = normalize_axis(self.axis, indices.rank + 1)
        return TensorType(self.dtype, (*indices.shape[:axis], self.depth, *indices.shape[axis:]))

    def decompose(self, indices: Value) -> Value:
        shape = self.infer(indices.type).shape
        axis = normalize_axis(self.axis, len(shape))
        labels = reshape(cast(indices, to=i64), (*shape[:axis], 1, *shape[axis + 1 :]))
        on, off = scalar(_exact(self.on), self.dtype), scalar(_exact(self.off), self.dtype)
        # Unsigned indices above 2**63 become negative here, and are out of range in both cases.
        return where(expand(labels, shape) == iota(axis=axis, shape=shape), on, off)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64, bf16, i64, bool_, c64):
            yield Sample("i64[2, 3]", depth=4, dtype=d, low=-1, high=4)
        for d in INTEGERS:
            yield Sample(f"{d}[5]", depth=3)
        for axis in (0, 1, 2, -1):
            yield Sample("i32[2, 3]", depth=4, axis=axis, on=0.75, off=-0.25, low=0, high=3)
        yield Sample("i64[]", depth=3, low=0, high=2)
        yield Sample("i64[0]", depth=3)
        yield Rejected("f32[2]", depth=3, error=DtypeError, says="integer")
        yield Rejected("i64[2]", depth=3, axis=2, error=AxisError, says="outside")
        yield Rejected("i64[2]", depth=3, on=1.5, dtype=i32, error=DtypeError, says="does not fit")


def _exact(number: float) -> complex:
    """Return a float attribute as the weakest number that represents it exactly, so that 1.0 fits an integer or a bool."""
    if not float(number).is_integer():
        return number
    return bool(number) if number in (0, 1) else int(number)


@define_op
class Linspace(Creation):
    """Evenly spaced numbers; both ends are exact.

    Attributes:
        start, stop: The first number and the end.
        num: The number of elements.
        endpoint: Whether `stop` is the last of them.
        dtype: A float dtype.
    """

    category: ClassVar = "elementwise"
    start: float
    stop: float
    num: Dim
    endpoint: bool = True
    dtype: DType = f32

    def infer(self) -> TensorType:
        if not self.dtype.is_float:
            raise DtypeError(f"dtype must be float, not {self.dtype}")
        return TensorType(self.dtype, (self.num,))

    def decompose(self) -> Value:
        # Steps are counted and scaled in f64, and rounded once: f32 cannot represent every count above 2**24.
        position = iota(axis=0, shape=(self.num,), dtype=f64)
        intervals = cast(dim_value(size=self.num), to=f64) - (1.0 if self.endpoint else 0.0)
        divisor = where(intervals == 0, 1.0, intervals)
        line = position * ((self.stop - self.start) / divisor) + self.start
        return cast(where(position < divisor, line, self.stop), to=self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64, bf16):
            yield Sample(start=-1.0, stop=2.5, num=7, dtype=d)
        yield Sample(start=0.0, stop=1.0, num=4, endpoint=False)
        for num in (0, 1, 2):
            yield Sample(start=3.0, stop=1.0, num=num)
        yield Rejected(start=0.0, stop=1.0, num=3, dtype=i64, error=DtypeError, says="float")


eye_matrix, one_hot, even_spacing = op_function(Eye), op_function(OneHot), op_function(Linspace)

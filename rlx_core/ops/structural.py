"""The linear ops that the rules of all other ops use: reshape, transpose, expand, sum.

They are defined before the kinds of ops (`kinds.py`), which use them, and they are transposes of one another: `expand` and
`sum`, `reshape` and `reshape`, `transpose` and its inverse. They therefore depend on no other ops. Conversions of elements are
in `conversion.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field

from rlx_core.errors import AxisError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, exact_quotient, is_static, product, require
from rlx_core.ir.dtypes import bf16, bool_, c64, f16, f32, f64, i32, i64, u8
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.strides import Strides, regrouped_strides
from rlx_core.ir.types import (
    Shape,
    TensorType,
    as_dim,
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
)
from rlx_core.ops.conversion import linear_jvp, per_element
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.system.records import frozen


def as_shape(dims: Iterable[Dim]) -> Shape:
    """Return dims as a tuple, the form of attributes, so that ops compare and hash.

    Raises:
        ShapeError: A dim is neither an integer nor an expression of symbols.
    """
    return tuple(map(as_dim, dims))


def as_axes(axes: Iterable[int]) -> tuple[int, ...]:
    """Return axes, shifts or counts as a tuple."""
    return tuple(axes)


@define_op
class Reshape(Op):
    """The same elements in row-major order with other dims; one dim may be -1.

    Shapes:
        x: [...]    ->    y: new_shape, with the same number of elements

    Raises:
        ShapeError: The number of elements differs, or -1 occurs more than once or together with a 0.
    """

    new_shape: Shape = field(converter=as_shape)
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        holes = self.new_shape.count(-1)
        known = product([d for d in self.new_shape if d != -1])
        if holes > 1:
            raise ShapeError(f"new_shape {list(self.new_shape)} has {holes} unknown dims; one is possible")
        if holes and known == 0:
            raise ShapeError(f"new_shape {list(self.new_shape)}: -1 beside a dim of 0 could be anything")
        if holes:
            hole = exact_quotient(x.size, known)
            return x.with_shape(hole if d == -1 else d for d in self.new_shape)
        if not require("==", x.size, known):
            raise ShapeError(f"{x} has {x.size} elements, new_shape {list(self.new_shape)} has {known}")
        return x.with_shape(self.new_shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        count = x.size
        dims = [d if is_static(d) else -1 for d in self.new_shape]
        assert dims.count(-1) <= 1 or count == 0, "symbols are bound before a program is evaluated"
        return np.reshape(x, dims)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (reshape(g, x.shape),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return reshape(t[0], y.shape)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        shape = self.infer(x[0].type.with_shape(x[0].shape[1:])).shape
        return reshape(x[0], (size, *shape))

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides] | None:
        regrouped = regrouped_strides(x, strides, self.infer(x).static_shape)
        return None if regrouped is None else (offset, regrouped)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 6]", new_shape=(3, 4))
        yield Sample("i64[2, 6]", new_shape=(-1, 2))
        yield Sample("c64[4]", new_shape=(2, 1, 2))
        yield Sample("f32[0, 3]", new_shape=(3, 0))
        yield Sample("f32[1]", new_shape=())
        yield Rejected("f32[6]", new_shape=(4,), error=ShapeError, says="6 elements")
        yield Rejected("f32[6]", new_shape=(-1, -1), error=ShapeError, says="one is possible")
        yield Rejected("f32[6]", new_shape=(4, -1), error=ShapeError, says="multiple")


reshape = op_function(Reshape)


@define_op
class Expand(Op):
    """Broadcast to a target shape; -1 keeps the operand's dim, leading dims may be added.

    Shapes:
        x: [..., 1 or d]    ->    y: [..., d]

    Raises:
        ShapeError: The operand does not broadcast to the target.
    """

    target: Shape = field(converter=as_shape)
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        extra = len(self.target) - x.rank
        if extra < 0:
            raise ShapeError(f"target {list(self.target)} has fewer axes than {x}")
        source_shape = (*self.target[:extra], *x.shape)
        target = tuple(k if d == -1 else d for d, k in zip(self.target, source_shape, strict=True))
        if broadcast_shapes(x.shape, target) != target:
            raise ShapeError(f"{x} does not broadcast to {list(target)}")
        return x.with_shape(target)

    def reference(self, x: np.ndarray) -> np.ndarray:
        shape = tuple(d.__index__() for d in self.infer(TensorType(f32, x.shape)).shape)
        return np.broadcast_to(x, shape)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (sum_to(g, x.shape),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        return expand(t[0], y.shape)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        unbatched = x[0].type.with_shape(x[0].shape[1:])
        target = self.infer(unbatched).shape
        aligned = reshape(x[0], (size, *(1,) * (len(target) - unbatched.rank), *unbatched.shape))
        return expand(aligned, (size, *target))

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        target = self.infer(x).static_shape
        added = len(target) - x.rank
        repeated = (0 if d == 1 and t != 1 else s for d, t, s in zip(x.shape, target[added:], strides, strict=True))
        return offset, (*(0,) * added, *repeated)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[1, 3]", target=(2, 3))
        yield Sample("f32[3]", target=(2, 2, 3))
        yield Sample("i32[2, 1]", target=(-1, 4))
        yield Sample("c64[2, 1]", target=(2, 3))
        yield Sample("f32[]", target=(2,))
        yield Sample("f32[1]", target=(0,))
        yield Rejected("f32[2]", target=(3,), error=ShapeError, says="broadcast")
        yield Rejected("f32[2, 3]", target=(3,), error=ShapeError, says="fewer axes")


expand = op_function(Expand)


@define_op
class Transpose(Op):
    """Permute the axes: axis `i` of the result is axis `perm[i]` of `x`.

    Raises:
        ShapeError: `perm` is not a permutation of the axes.
    """

    perm: tuple[int, ...] = field(converter=as_axes)
    category: ClassVar = "movement"

    def infer(self, x: TensorType) -> TensorType:
        axes = [normalize_axis(p, x.rank) for p in self.perm]
        if sorted(axes) != list(range(x.rank)):
            raise ShapeError(f"perm {list(self.perm)} is not a permutation of the {x.rank} axes of {x}")
        return x.with_shape(x.shape[a] for a in axes)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.transpose(x, self.perm)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        axes = [normalize_axis(p, x.ndim) for p in self.perm]
        return (transpose(g, tuple(axes.index(i) for i in range(len(axes)))),)

    jvp = linear_jvp

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        rank = x[0].ndim - 1
        return transpose(x[0], (0, *(normalize_axis(p, rank) + 1 for p in self.perm)))

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        return offset, tuple(strides[p] for p in self.perm)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]", perm=(2, 0, 1))
        yield Sample("c64[2, 3]", perm=(1, 0))
        yield Sample("bool[2, 0]", perm=(-1, 0))
        yield Sample("f32[]", perm=())
        yield Rejected("f32[2, 3]", perm=(0, 0), error=ShapeError, says="permutation")


transpose = op_function(Transpose)


@frozen(slots=False)
class Reduction(Op):
    """Base of reductions: the dims of the result and how a batch axis shifts the axes."""

    axes: tuple[int, ...] = field(converter=as_axes)
    keep_dim: bool = False
    category: ClassVar[Category] = "reduction"
    cost = per_element(1)

    def reduced(self, x: TensorType) -> TensorType:
        """Return the operand's type with the axes dropped, or 1."""
        return x.with_shape(reduced_shape(x, self.axes, self.keep_dim))

    def sizes(self, x: TensorType) -> list[Dim]:
        """Return the sizes of the reduced axes."""
        return [x.shape[a] for a in normalize_axes(self.axes, x.rank)]

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        axes = normalize_axes(self.axes, x[0].ndim - 1)
        return evolve(self, axes=tuple(a + 1 for a in axes))(x[0])


@define_op
class Sum(Reduction):
    """The sum over `axes`; an empty list of axes is the identity.

    f16 and bf16 accumulate in f32 and round once; integers keep their dtype and wrap. A sum of bool is i64.

    Shapes:
        x: [..., n, ...]    ->    y: the listed axes dropped, or 1 with keep_dim
    """

    def infer(self, x: TensorType) -> TensorType:
        return self.reduced(x).with_dtype(i64 if x.dtype is bool_ else x.dtype)

    def reference(self, x: np.ndarray) -> np.ndarray:
        total = np.int64 if x.dtype == np.bool_ else x.dtype
        return np.asarray(np.sum(x, axis=normalize_axes(self.axes, x.ndim), keepdims=self.keep_dim, dtype=total))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (expand_reduced(g, x.type, self.axes),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64, f16, bf16, c64, i32, u8, bool_):
            yield Sample(f"{d}[2, 3, 4]", axes=(1,))
        for axis in range(4):
            yield Sample("f32[2, 3, 4, 5]", axes=(axis,))
        yield Sample("i64[3, 2]", axes=(0,), low=2**53, high=2**53 + 99)
        yield Sample("f32[2, 3, 4]", axes=(0, -1), keep_dim=True)
        yield Sample("f32[2, 3]", axes=())
        yield Sample("f32[2, 0]", axes=(1,))
        yield Sample("f32[]", axes=())
        yield Rejected("f32[2, 3]", axes=(2,), error=AxisError, says="outside")
        yield Rejected("f32[2, 3]", axes=(0, -2), error=AxisError, says="twice")


sum_axes = op_function(Sum)


def reduced_shape(x: TensorType, axes: Sequence[int], keep_dim: bool) -> Shape:
    """Return the dims of a reduction of `x` over `axes`."""
    dropped = normalize_axes(axes, x.rank)
    if keep_dim:
        return tuple(1 if i in dropped else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in dropped)


def expand_reduced(g: Value, to: TensorType, axes: Sequence[int]) -> Value:
    """Return a reduced value broadcast over its reduced axes: the transpose of `Sum`, with or without keep_dim."""
    kept_shape = reduced_shape(to, axes, keep_dim=True)
    return expand(g if g.shape == kept_shape else reshape(g, kept_shape), to.shape)


def sum_to(g: Value, shape: Sequence[Dim]) -> Value:
    """Un-broadcast a cotangent: sum over the axes that broadcasting added to `shape`."""
    if g.shape == tuple(shape):
        return g
    extra = g.ndim - len(shape)
    stretched = [i + extra for i, d in enumerate(shape) if d == 1 and g.shape[i + extra] != 1]
    axes = (*range(extra), *stretched)
    total = sum_axes(g, axes=axes) if axes else g
    return total if total.shape == tuple(shape) else reshape(total, tuple(shape))


def all_batched(size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> list[Value]:
    """Return the operands of a batched op, all with the batch axis, broadcast where it was missing."""
    return [v if b else expand(v, (size, *v.shape)) for v, b in zip(x, is_batched, strict=True)]


def joint_batch(op: Any, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """Batch an op that may have any leading axes, which are the same for all operands."""
    return op(*all_batched(size, x, is_batched))


def along_axis_batch(op: Any, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
    """Batch an op along one `axis`: every operand has the batch axis in front, so the op's axis is incremented."""
    batched = all_batched(size, x, is_batched)
    return evolve(op, axis=normalize_axis(op.axis, batched[0].ndim - 1) + 1)(*batched)

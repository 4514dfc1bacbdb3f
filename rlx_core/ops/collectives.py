"""Collectives: values combined over the members of named axes, and the position of a member.

A function is written for one member of an axis, and `rlx.vmap(axis_name=)` maps it over all of them. Each collective has rules
for one member and, as `over`, an expression for the mapped axis. Derivatives are those of the sum of the results of all
members: the operand of a member affects the results of all others, so the pullback of a sum is the sum of the cotangents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from attrs import evolve, field

from rlx_core.errors import AxisNameError, DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import ALL, FLOATS, INEXACT, INTEGERS, bool_, i32, i64
from rlx_core.ir.graph import Value
from rlx_core.ir.mesh import Mesh, OverNamedAxes, current_mesh
from rlx_core.ir.op import Category, Op, define_op
from rlx_core.ir.rules import Replicated
from rlx_core.ir.types import Shape, TensorType, expect_dtype
from rlx_core.ops.conversion import as_dtype, cast, linear_jvp, operand_batch, widened
from rlx_core.ops.creation import Creation, dim_value, full, iota
from rlx_core.ops.reduction import averaged, max_axes, mean_axes, min_axes
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import as_shape, sum_axes
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import map_leaves

if TYPE_CHECKING:
    from rlx_core.typing import Array

T = TypeVar("T")


def times(x: Value, size: Dim) -> Value:
    """Return the sum of `size` copies of `x`: narrow floats are rounded once, integers wrap."""
    wide = widened(x)
    return as_dtype(wide * cast(dim_value(size=size), to=wide.dtype), x.dtype)


def as_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen(slots=False)
class Collective(OverNamedAxes, Op):
    """A reduction over named axes: every member has the result.

    Attributes:
        axis_names: The axes.
        sizes: The number of members of each axis.
    """

    category: ClassVar[Category] = "reduction"
    is_barrier: ClassVar[bool] = True  # all members must take part in the same order, and one member cannot fold it
    axis_names: tuple[str, ...] = field(converter=as_names)
    sizes: Shape = field(converter=as_shape)
    batch = operand_batch  # its axes are not among those of the operand

    def __attrs_post_init__(self) -> None:
        if len(self.axis_names) != len(self.sizes):
            raise AxisNameError(f"{self.title}: {len(self.axis_names)} axis names have {len(self.sizes)} sizes")
        if len(set(self.axis_names)) != len(self.axis_names):
            raise AxisNameError(f"{self.title}: an axis is named twice in {self.axis_names}")

    @property
    def over_names(self) -> tuple[str, ...]:
        return self.axis_names

    def over(self, name: str, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Replicated:
        position = self.axis_names.index(name)
        expected = self.sizes[position]
        if expected != size:
            raise AxisNameError(f"{self.title}: axis {name!r} has size {size}, and the op was made for {expected}")
        combined = self.combined(x[0]) if is_batched[0] else self.of_equal(x[0], size)
        names, sizes = ((*each[:position], *each[position + 1 :]) for each in (self.axis_names, self.sizes))
        return Replicated(evolve(self, axis_names=names, sizes=sizes)(combined) if names else combined)

    def combined(self, x: Value) -> Value:
        """Return the reduction over the first axis."""
        raise NotImplementedError

    def of_equal(self, x: Value, size: Dim) -> Value:
        """Return the reduction of `size` equal operands."""
        return x

    def decompose(self, x: Value) -> Value:
        return self.of_equal(x, product(self.sizes))


@define_op(name="psum")
class PSum(Collective):
    """The sum over the members of named axes. Integers keep their dtype and wrap; a sum of bool is i64.

    Shapes:
        x: t[...]    ->    y: like x, equal for all members
    """

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(i64 if x.dtype is bool_ else x.dtype)

    def combined(self, x: Value) -> Value:
        return sum_axes(x, axes=(0,))

    def of_equal(self, x: Value, size: Dim) -> Value:
        return times(cast(x, to=i64) if x.dtype is bool_ else x, size)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (self(g),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 3]", axis_names=("i",), sizes=(4,))
        yield Sample("f32[]", axis_names=("i", "j"), sizes=(2, 3))
        yield Sample("u8[3]", axis_names=("i",), sizes=(300,), low=100, high=255)
        yield Sample("f16[2]", axis_names=("i",), sizes=(70000,), low=-0.5, high=0.5)
        yield Sample("f32[3]", axis_names=(), sizes=())
        yield Sample("f32[0]", axis_names=("i",), sizes=(2,))
        yield Rejected("f32[3]", axis_names=("i",), sizes=(), error=AxisNameError, says="1 axis names have 0 sizes")
        yield Rejected("f32[3]", axis_names=("i", "i"), sizes=(2, 2), error=AxisNameError, says="named twice")


@define_op(name="pmean")
class PMean(Collective):
    """The mean over the members of named axes. Integers are averaged in f32, 64-bit ones in f64.

    Shapes:
        x: t[...]    ->    y: like x, equal for all members
    """

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, INEXACT, "float or complex")
        return x

    def prepare(self, x: Value) -> Value:
        return averaged(x)

    def combined(self, x: Value) -> Value:
        return mean_axes(x, axes=(0,))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (self(g),)

    jvp = linear_jvp

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (*INEXACT, i32, i64, bool_):
            yield Sample(f"{d}[2, 3]", axis_names=("i",), sizes=(4,))
        yield Sample("f32[]", axis_names=("i", "j"), sizes=(2, 3))


@frozen(slots=False)
class ExtremeOverMembers(Collective):
    """The largest or smallest value over members, element by element: ties share the derivative evenly, as in `reduce_max`."""

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, (*INTEGERS, *FLOATS, bool_), "real or bool")
        return x

    def _sum(self, x: Value) -> Value:
        """Return the sum over the same axes, narrow floats in f32."""
        return PSum(self.axis_names, self.sizes)(widened(x))

    def _is_extreme(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Return whether this member's operand equals the result, and the number of members for which it does."""
        is_extreme = x == y
        return is_extreme, self._sum(cast(is_extreme, to=x.dtype.accumulator))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        is_extreme, count = self._is_extreme(x, y)
        share = as_dtype(self._sum(g) / count, g.dtype)
        return (where(is_extreme, share, where(y == y, 0, y)),)  # a NaN equals no operand, and its derivatives are NaN

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        is_extreme, count = self._is_extreme(x, y)
        return as_dtype(self._sum(where(is_extreme, t[0], 0)) / count, t[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (*INTEGERS, *FLOATS, bool_):
            yield Sample(f"{d}[2, 3]", axis_names=("i",), sizes=(4,))
        yield Sample("f32[]", axis_names=("i", "j"), sizes=(2, 3))
        yield Rejected("c64[2]", axis_names=("i",), sizes=(4,), error=DtypeError, says="real")


@define_op(name="pmax")
class PMax(ExtremeOverMembers):
    """The largest value over the members of named axes, element by element; NaN propagates.

    Shapes:
        x: t[...]    ->    y: like x, equal for all members
    """

    def combined(self, x: Value) -> Value:
        return max_axes(x, axes=(0,))


@define_op(name="pmin")
class PMin(ExtremeOverMembers):
    """The smallest value over the members of named axes, element by element; NaN propagates.

    Shapes:
        x: t[...]    ->    y: like x, equal for all members
    """

    def combined(self, x: Value) -> Value:
        return min_axes(x, axes=(0,))


@define_op
class AxisIndex(OverNamedAxes, Creation):
    """The position of a member along a named axis, from 0.

    Shapes:
        ->    y: i64[]

    Attributes:
        axis_name: The axis.
        size: The number of members.
    """

    category: ClassVar[Category] = "movement"
    is_barrier: ClassVar[bool] = True  # its value differs between members, so it is not folded
    communicates: ClassVar[bool] = False
    axis_name: str
    size: Dim

    @property
    def over_names(self) -> tuple[str, ...]:
        return (self.axis_name,)

    def infer(self) -> TensorType:
        return TensorType(i64)

    def decompose(self) -> Value:
        index: Value = full((), 0, i64)
        return index

    def over(self, name: str, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        positions: Value = iota(axis=0, shape=(size,), dtype=i64)
        return positions

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample(axis_name="i", size=4)


def _chosen(what: str, axis_name: str | Sequence[str]) -> Mesh:
    return current_mesh().select(what, axis_name)


def _over(op: type[Collective], x: Any, axis_name: str | Sequence[str]) -> Any:
    mesh = _chosen(op.title, axis_name)
    collective = op(mesh.names, mesh.sizes)
    return map_leaves(collective, x)


@checked_call
def psum(x: T, axis_name: str | Sequence[str]) -> T:
    """The sum of `x` over all examples of the axes that `rlx.vmap` gives these names.

    The result is equal for all examples. In a derivative the results of all examples contribute: the pullback of a sum is the
    sum of the cotangents.

    Args:
        x: A pytree of arrays of any dtype; each leaf is summed. A Python number is multiplied by the size.
        axis_name: The name of an axis, or a tuple of names.

    Raises:
        AxisNameError: No enclosing `vmap` has an axis of this name.

    >>> rlx.vmap(lambda x: x / rlx.psum(x, "batch"), axis_name="batch")(np.float32([1, 2, 5]))
    Array([0.125, 0.25 , 0.625], dtype=float32)
    """
    mesh = _chosen("psum", axis_name)
    size = product(mesh.sizes)

    def each(leaf: Any) -> Any:
        if type(leaf) in (bool, int) or (type(leaf) in (float, complex) and isinstance(size, int)):
            return leaf * size
        return PSum(mesh.names, mesh.sizes)(leaf)

    return map_leaves(each, x)


@checked_call
def pmean(x: T, axis_name: str | Sequence[str]) -> T:
    """The mean of `x` over all examples of the axes that `rlx.vmap` gives these names.

    Args:
        x: A pytree of arrays; integers are averaged in f32, 64-bit ones in f64.
        axis_name: The name of an axis, or a tuple of names.

    Raises:
        AxisNameError: No enclosing `vmap` has an axis of this name.

    >>> rlx.vmap(lambda x: x - rlx.pmean(x, "batch"), axis_name="batch")(np.float32([1, 2, 6]))
    Array([-2., -1.,  3.], dtype=float32)
    """
    return _over(PMean, x, axis_name)


@checked_call
def pmax(x: T, axis_name: str | Sequence[str]) -> T:
    """The largest value of `x` over all examples of the axes that `rlx.vmap` gives these names, element by element.

    NaN propagates, and ties share the derivative evenly.

    Args:
        x: A pytree of arrays of real dtypes or bool.
        axis_name: The name of an axis, or a tuple of names.

    Raises:
        AxisNameError: No enclosing `vmap` has an axis of this name.
        DtypeError: A leaf is complex.
    """
    return _over(PMax, x, axis_name)


@checked_call
def pmin(x: T, axis_name: str | Sequence[str]) -> T:
    """The smallest value of `x` over all examples of the axes that `rlx.vmap` gives these names, element by element.

    Arguments, derivatives and errors are those of `pmax`.
    """
    return _over(PMin, x, axis_name)


@checked_call
def axis_index(axis_name: str | Sequence[str]) -> Array:
    """The position of the example along the axis that `rlx.vmap` gives this name, an i64 scalar.

    Args:
        axis_name: The name of an axis, or a tuple of names: their position in row-major order, the last axis fastest.

    Raises:
        AxisNameError: No enclosing `vmap` has an axis of this name.

    >>> rlx.vmap(lambda x: x + rlx.axis_index("batch"), axis_name="batch")(np.int64([10, 10, 10]))
    Array([10, 11, 12])
    """
    mesh = _chosen("axis_index", axis_name)
    index: Any = full((), 0, i64) if not mesh.names else None
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        position = AxisIndex(name, size)()
        index = position if index is None else index * size + position
    return index


@checked_call
def axis_size(axis_name: str | Sequence[str]) -> Dim:
    """The number of examples along the axis that `rlx.vmap` gives this name: an integer, or a size with symbols.

    Args:
        axis_name: The name of an axis, or a tuple of names, whose sizes are multiplied.

    Raises:
        AxisNameError: No enclosing `vmap` has an axis of this name.
    """
    return product(_chosen("axis_size", axis_name).sizes)

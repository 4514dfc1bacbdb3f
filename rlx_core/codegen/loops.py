"""The loop language: an index space, values in SSA form over it, and stores.

A kernel computes, for every point of its *grid*, a few loops over its *rows*: the axes that it reduces. A value *varies* over
the rows or is one number per grid point. Reductions turn the first kind into the second, and the loop of a value follows from
that: the loop that sums `exp(x - max x)` runs after the loop that computes the maximum (`schedule.py`). A kernel without rows
computes element by element.

Values are numbered in the order of `Kernel.values`; an operand of a value is an earlier number. The scalar operations are the
primitive element-wise ops themselves, so no second set of operations is needed: `Apply(exp)` means `rlx.exp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

from attrs import field

from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ir.strides import WIDEST
from rlx_core.system.records import frozen

Combine = Literal["sum", "prod", "max", "min"]
"""The combining operation of a reduction. `max` and `min` propagate NaN; an empty sum is 0, an empty product 1."""


@frozen
class Buffer:
    """Memory that is passed to the kernel: an operand or a result, which begins at a multiple of `alignment` bytes.

    Of complex elements each part is loaded and stored by itself; values are real.
    """

    name: str
    dtype: DType
    is_result: bool = False
    alignment: int = WIDEST

    @property
    def accessed(self) -> DType:
        """The dtype of loads and stores."""
        return self.dtype.component if self.dtype.is_complex else self.dtype


@frozen
class Load:
    """An element of a buffer at `offset + Σ index[axis]·strides[axis] + Σ value·stride` bytes.

    Attributes:
        buffer: Number of the buffer.
        strides: Bytes, one an axis of the kernel; 0 along axes it does not vary with.
        offset: Bytes.
        dynamic: (value, bytes): indices that are themselves values; each is a `Bound`, so that it lies inside.
    """

    buffer: int
    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0
    dynamic: tuple[tuple[int, int], ...] = ()


@frozen
class Const:
    """A number known when the kernel is made."""

    dtype: DType
    number: bool | int | float


@frozen
class Index:
    """The position `offset + scale·index[axis]`, as i64."""

    dtype: DType
    axis: int
    offset: int = 0
    scale: int = 1


@frozen
class Apply:
    """A primitive element-wise op on values of equal place."""

    dtype: DType
    op: Op
    args: tuple[int, ...]


@frozen
class Bound:
    """An index clamped to 0..size-1, as i64. With `is_checked` an index out of range is reported."""

    dtype: DType
    arg: int
    size: int
    is_checked: bool


@frozen
class Reduce:
    """All elements of a value over the rows, combined into one."""

    dtype: DType
    combine: Combine
    arg: int


Scalar: TypeAlias = Load | Const | Index | Apply | Bound | Reduce


@frozen
class Store:
    """A value written at `offset + Σ index[axis]·strides[axis]` bytes of a buffer, once for each place it varies over."""

    buffer: int
    value: int
    strides: tuple[int, ...]
    offset: int = 0


@frozen
class Kernel:
    """One loop kernel; see the module's docstring.

    Attributes:
        name: Name of the computation.
        extents: The sizes of all axes, the grid's first.
        grid: Number of axes of the grid.
        buffers: Operands, then results.
        values: In SSA form.
        stores: In order.
    """

    name: str
    extents: tuple[int, ...]
    grid: int
    buffers: tuple[Buffer, ...]
    values: tuple[Scalar, ...]
    stores: tuple[Store, ...] = field()

    @property
    def grid_axes(self) -> range:
        return range(self.grid)

    @property
    def row_axes(self) -> range:
        return range(self.grid, len(self.extents))

    @property
    def grid_size(self) -> int:
        """Points of the grid."""
        return prod(self.extents[: self.grid])

    @property
    def row_size(self) -> int:
        """Elements of a row; 1 without rows."""
        return prod(self.extents[self.grid :])

    @cached_property
    def varies(self) -> tuple[bool, ...]:
        """For each value, whether it varies over the rows."""
        return tuple(self._varies_along(frozenset(self.row_axes)))

    def is_along_rows(self, store: Store) -> bool:
        """Return whether every element of a row is stored; else one number per row is.

        A row-invariant value may be stored along the row: a mean that is broadcast, for example.
        """
        return self.varies[store.value] or any(store.strides[a] for a in self.row_axes)

    def varies_along(self, axis: int) -> tuple[bool, ...]:
        """For each value, whether it varies along one axis."""
        return tuple(self._varies_along(frozenset((axis,))))

    def _varies_along(self, axes: frozenset[int]) -> Iterator[bool]:
        varies: list[bool] = []
        for value in self.values:
            if isinstance(value, Reduce):
                # A reduction over the rows still varies along the grid with its argument.
                one = varies[value.arg] and not axes.issubset(self.row_axes)
            elif isinstance(value, Load):
                one = any(value.strides[a] for a in axes) or any(varies[v] for v, _ in value.dynamic)
            elif isinstance(value, Index):
                one = value.axis in axes
            else:
                one = any(varies[a] for a in operands_of(value))
            varies.append(one)
            yield one

    @property
    def loads(self) -> Iterator[Load]:
        return (v for v in self.values if isinstance(v, Load))

    @property
    def accesses(self) -> tuple[Load | Store, ...]:
        """All memory accesses: loads, then stores."""
        return (*self.loads, *self.stores)

    @property
    def has_check(self) -> bool:
        """Whether an index may turn out to lie outside, which is reported."""
        return any(isinstance(v, Bound) and v.is_checked for v in self.values)


def operands_of(value: Scalar) -> tuple[int, ...]:
    """The values that a value is computed from."""
    if isinstance(value, Apply):
        return value.args
    if isinstance(value, Bound | Reduce):
        return (value.arg,)
    if isinstance(value, Load):
        return tuple(v for v, _ in value.dynamic)
    return ()

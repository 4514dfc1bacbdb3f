"""Positions of the extremes of windows, and the derivatives of pools of extremes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from attrs import evolve, field

from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, DType, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import define_op
from rlx_core.ir.types import Shape, TensorType
from rlx_core.ops.conversion import cast, zero_jvp, zero_vjp
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.convolution.sliding import overlap_add
from rlx_core.ops.convolution.ways import fitted, windows_of
from rlx_core.ops.creation import dim_value, iota, scalar
from rlx_core.ops.pooling.pool import SpatialPool, pool_samples
from rlx_core.ops.reduction import max_axes, min_axes
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape, sum_axes

Extreme = Literal["max", "min"]


def extreme_of_nothing(dtype: DType, extreme: Extreme) -> Any:
    """Return the neutral element of the extreme."""
    if dtype in FLOATS:
        return float("-inf") if extreme == "max" else float("inf")
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if extreme == "max" else limits.max)


@define_op
class PoolPositions(SpatialPool):
    """The position of every window's extreme: the first one in row-major order, where NaN is extreme.

    Cells are counted in row-major order within the window. For a window of padding alone the position is its number of cells.

    Shapes:
        x: [n, c, l..], with its padding    ->    y: i32[n, c, o..]

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation: See `Windowed`.
        lo, hi: The number of cells at both ends of x that are padding, and are ignored.
        extreme: "max" or "min".
    """

    extreme: Extreme = field(default="max", kw_only=True)
    vjp = zero_vjp
    jvp = zero_jvp

    def infer(self, x: TensorType) -> TensorType:
        counts = self.inner(self.windows(x)).counts(x.shape[2:])
        return TensorType(i32, (*x.shape[:2], *counts))

    @staticmethod
    def inner(geometry: Geometry) -> Geometry:
        """Return the same windows of an operand that is padded already."""
        return evolve(geometry, lo=(0,) * geometry.rank, hi=(0,) * geometry.rank)

    def decompose(self, x: Value) -> Value:
        geometry = self.geometry(self.kernel)
        axes = tuple(range(2, 2 + geometry.rank))
        read = windows_of(x, self.inner(geometry))
        inside = is_inside(x, geometry, read.shape[2 + geometry.rank :])
        beaten = scalar(extreme_of_nothing(x.dtype, self.extreme), x.dtype)
        counted = read if inside is None else where(inside, read, beaten)
        best = (max_axes if self.extreme == "max" else min_axes)(counted, axes=axes, keep_dim=True)
        is_best = (read == best) | (read != read) if x.dtype in FLOATS else read == best
        is_match = is_best if inside is None else is_best & inside
        number = expand(cell_numbers(geometry), read.shape)
        return min_axes(where(is_match, number, scalar(geometry.cells, i32)), axes=axes)

    def cost(self, x: TensorType) -> Dim:
        return 4 * self.infer(x).size * self.geometry(self.kernel).cells

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from pool_samples()
        yield Sample("f32[2, 2, 7]", kernel=(3,), lo=(1,), hi=(2,), extreme="min")
        yield Sample("i32[2, 2, 7]", kernel=(3,), lo=(1,), extreme="min")


pool_positions = op_function(PoolPositions)


def cell_numbers(geometry: Geometry) -> Value:
    """Return the number of each cell of a window, `i32[k.., 1..]`."""
    total: Any = None
    after = 1
    for axis in reversed(range(geometry.rank)):
        offsets = iota(axis=axis, shape=(*geometry.kernel, *(1,) * geometry.rank), dtype=i32) * after
        total = offsets if total is None else total + offsets
        after *= geometry.kernel[axis]
    result: Value = total
    return result


def is_inside(x: Value, geometry: Geometry, counts: Shape) -> Value | None:
    """Return which cells of the windows are not padding, `bool[k.., o..]`; `None` if there is no padding."""
    result: Any = None
    rank = geometry.rank
    for axis in range(rank):
        lo, hi = geometry.lo[axis], geometry.hi[axis]
        if not lo and not hi:
            continue
        shape = (*geometry.kernel, *counts)
        cell = iota(axis=axis, shape=shape, dtype=i32) * geometry.dilation[axis]
        place = cell + iota(axis=rank + axis, shape=shape, dtype=i32) * geometry.stride[axis]
        end = x.shape[2 + axis] - hi
        in_bounds = (place >= lo) & (place < (end if isinstance(end, int) else cast(dim_value(size=end), to=i32)))
        result = in_bounds if result is None else result & in_bounds
    inside: Value | None = result
    return inside


def with_cells(y: Value, geometry: Geometry) -> Value:
    """Return `[n, c, o..]` as `[n, c, 1.., o..]`, which broadcasts against windows."""
    return reshape(y, (*y.shape[:2], *(1,) * geometry.rank, *y.shape[2:]))


def is_chosen(positions: Value, geometry: Geometry) -> Value:
    """Return whether each cell of the windows is the one at its window's position, `bool[n, c, k.., o..]`."""
    chosen: Value = with_cells(positions, geometry) == cell_numbers(geometry)
    return chosen


def taken(x: Value, positions: Value, geometry: Geometry) -> Value:
    """Return the element of x at the position of each window; 0 if there is none. x has its padding."""
    axes = tuple(range(2, 2 + geometry.rank))
    return sum_axes(where(is_chosen(positions, geometry), windows_of(x, geometry), 0), axes=axes)


def added_at(dy: Value, positions: Value, sizes: Shape, geometry: Geometry) -> Value:
    """Return `[n, c, sizes..]` in which each dy is added to the cell at the position of its window: the transpose of `taken`."""
    spread = where(is_chosen(positions, geometry), with_cells(dy, geometry), 0)
    padded_sizes = tuple(lo + n + hi for lo, n, hi in zip(geometry.lo, sizes, geometry.hi, strict=True))
    padded = overlap_add(spread, sizes=padded_sizes, stride=geometry.stride, dilation=geometry.dilation)
    return fitted(padded, tuple(-n for n in geometry.lo), tuple(-n for n in geometry.hi))

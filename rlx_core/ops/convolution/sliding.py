"""Windows of the trailing axes, and the sum of overlapping windows: transposes of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import ALL
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category, define_op
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_rank, expect_shape
from rlx_core.ops.conversion import linear_jvp, operand_batch
from rlx_core.ops.convolution.geometry import Geometry, Windowed
from rlx_core.ops.linalg import NUMERIC
from rlx_core.ops.movement import narrow, pad_axis, spread_size
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import as_axes, as_shape, reshape, sum_axes, transpose


class Sliding(Windowed):
    """Base of both ops: windows of given sizes in the last axes, linear, and the same for every leading index."""

    kernel: tuple[int, ...]

    jvp = linear_jvp
    batch = operand_batch

    def windows(self) -> Geometry:
        """Return the geometry, which has no padding.

        Raises:
            ShapeError: There is padding, or no axis.
        """
        geometry = self.geometry(self.kernel)
        if geometry.is_padded:
            raise ShapeError("takes no padding; pad the operand")
        if not self.kernel:
            raise ShapeError("the kernel has no axis")
        return geometry


@define_op
class SlidingWindows(Sliding):
    """The windows of the last axes: y[.., k.., o..] = x[.., o·stride + k·dilation, ..].

    Shapes:
        x: [.., n..]    ->    y: [.., kernel.., counts..]

    Attributes:
        kernel: The size of a window along each of the last axes.
        stride, dilation: See `Windowed`; there is no padding.

    Raises:
        ShapeError: A window is larger than its axis, or a step is below 1.
    """

    kernel: tuple[int, ...] = field(converter=as_axes)
    category: ClassVar[Category] = "movement"

    def infer(self, x: TensorType) -> TensorType:
        windows = self.windows()
        expect_rank("x", x, windows.rank)
        lead, sizes = x.shape[: x.rank - windows.rank], x.shape[x.rank - windows.rank :]
        return x.with_shape((*lead, *windows.kernel, *windows.counts(sizes)))

    def reference(self, x: np.ndarray) -> np.ndarray:
        windows = self.windows()
        lead = x.ndim - windows.rank
        shape = tuple(n.__index__() for n in windows.counts(x.shape[lead:]))
        if 0 in shape:
            return np.empty((*x.shape[:lead], *windows.kernel, *shape), x.dtype)  # a view would begin outside of x
        spatial_strides = x.strides[lead:]
        by_cell = tuple(s * d for s, d in zip(spatial_strides, windows.dilation, strict=True))
        by_window = tuple(s * w for s, w in zip(spatial_strides, windows.stride, strict=True))
        strides = (*x.strides[:lead], *by_cell, *by_window)
        view = np.lib.stride_tricks.as_strided(x, (*x.shape[:lead], *windows.kernel, *shape), strides, writeable=False)
        return np.ascontiguousarray(view)

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        windows = self.windows()
        lead, spatial_strides = strides[: x.rank - windows.rank], strides[x.rank - windows.rank :]
        by_cell = (s * d for s, d in zip(spatial_strides, windows.dilation, strict=True))
        by_window = (s * w for s, w in zip(spatial_strides, windows.stride, strict=True))
        return offset, (*lead, *by_cell, *by_window)

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        sizes = x.shape[x.ndim - len(self.kernel) :]
        return (overlap_add(g, sizes=sizes, stride=self.stride, dilation=self.dilation),)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ALL:
            yield Sample(f"{d}[2, 7]", kernel=(3,), stride=(2,))
        yield Sample("f32[6, 5]", kernel=(3, 2), dilation=(2, 1))
        yield Sample("f64[2, 5, 6, 4]", kernel=(2, 3, 2), stride=(1, 3, 2))
        yield Sample("f32[4]", kernel=(1,), stride=(3,))
        yield Sample("f32[4]", kernel=(4,))
        yield Sample("f32[2, 0]", kernel=(3,))
        yield Sample("f32[0, 4]", kernel=(2,))
        yield Rejected("f32[4]", kernel=(5,), error=ShapeError, says="spans 5 cells of spatial axis 0, which has 4")
        yield Rejected("f32[4]", kernel=(3,), dilation=(2,), error=ShapeError, says="spans 5 cells (3 at steps of 2)")
        yield Rejected("f32[4]", kernel=(2,), stride=(0,), error=ShapeError, says="stride must be at least 1")
        yield Rejected("f32[4]", kernel=(2, 2), error=ShapeError, says="2 or more axes")
        yield Rejected("f32[4, 4]", kernel=(2, 2), stride=(1,), error=ShapeError, says="1 numbers for 2")
        yield Rejected("f32[4]", kernel=(2,), lo=(1,), error=ShapeError, says="pad the operand")


sliding_windows = op_function(SlidingWindows)


@define_op
class OverlapAdd(Sliding):
    """Overlapping windows added: y[.., i, ..] = Σ x[.., k.., o..] over the cells with o·stride + k·dilation = i.

    Shapes:
        x: [.., kernel.., counts..]    ->    y: [.., sizes..]

    Attributes:
        sizes: The sizes of the axes of the windows.

    Raises:
        ShapeError: The number of windows does not match `sizes`.
    """

    sizes: Shape = field(converter=as_shape)
    category: ClassVar[Category] = "reduction"

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, NUMERIC, "numeric")
        rank = len(self.sizes)
        expect_rank("x", x, 2 * rank)
        lead, kernel = x.shape[: x.rank - 2 * rank], x.shape[x.rank - 2 * rank : x.rank - rank]
        if not rank:
            raise ShapeError("there is no size")
        counts = self._windows(kernel).counts(self.sizes)
        expect_shape("x", x, (*lead, *kernel, *counts))
        return x.with_shape((*lead, *self.sizes))

    def _windows(self, kernel: Sequence[Dim]) -> Geometry:
        windows = self.geometry(kernel)
        if windows.is_padded:
            raise ShapeError("takes no padding; slice the result")
        return windows

    def decompose(self, x: Value) -> Value:
        rank = len(self.sizes)
        lead = x.ndim - 2 * rank
        windows = self._windows(x.shape[lead : lead + rank])
        for axis in reversed(range(rank)):
            # The axes are now: leading, cells up to this one, windows up to this one, sizes already summed.
            cell, window = lead + axis, lead + 2 * axis + 1
            others = [i for i in range(x.ndim) if i not in (cell, window)]
            x = self._line(transpose(x, (*others, cell, window)), windows, axis)
            x = transpose(x, (*range(window - 1), x.ndim - 1, *range(window - 1, x.ndim - 1)))
        return x

    def _line(self, x: Value, windows: Geometry, axis: int) -> Value:
        """Return the sum along one axis, whose cells and windows are the last two axes of `x`."""
        *_, cells, count = x.shape
        lead, size, last = x.shape[:-2], self.sizes[axis], x.ndim - 1
        step, gap = windows.stride[axis], windows.dilation[axis]
        if count == 0:
            return sum_axes(x, axes=(last - 1,))  # only an axis without cells has no window
        if cells == step and gap == 1:
            # Adjacent windows: every cell is in one of them, or after the last.
            joined = reshape(transpose(x, (*range(last - 1), last, last - 1)), (*lead, count * step))
            return pad_axis(joined, last - 1, 0, size - count * step)
        # Row k, shifted by k·dilation: shifted rows of one matrix are the rows of a longer one read at a shorter stride.
        before = (cells - 1) * gap
        length = size + before
        spread = pad_axis(x, last, before, length - before - spread_size(count, step - 1), step - 1)
        if cells == 1:
            return reshape(spread, (*lead, size))
        flat = reshape(spread, (*lead, cells * length))
        shifted = narrow(flat, axis=last - 1, start=before, length=cells * (length - gap))
        rows = narrow(reshape(shifted, (*lead, cells, length - gap)), axis=last, start=0, length=size)
        return sum_axes(rows, axes=(last - 1,))

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        rank = len(self.sizes)
        kernel = x.shape[x.ndim - 2 * rank : x.ndim - rank]
        return (sliding_windows(g, kernel=kernel, stride=self.stride, dilation=self.dilation),)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16", "c64", "i32", "u8"):
            yield Sample(f"{d}[2, 3, 3]", sizes=(7,), stride=(2,))
        yield Sample("f32[3, 2, 2, 4]", sizes=(6, 5), dilation=(2, 1))
        yield Sample("f64[2, 2, 3, 2, 4, 2, 2]", sizes=(5, 6, 4), stride=(1, 3, 2))
        yield Sample("f32[2, 3]", sizes=(7,), stride=(2,))
        yield Sample("f32[1, 2]", sizes=(5,), stride=(3,))
        yield Sample("f32[3, 0]", sizes=(0,))
        yield Rejected("f32[3, 4]", sizes=(7,), error=ShapeError, says="x must be [3, 5]")
        yield Rejected("f32[3, 4]", sizes=(2,), error=ShapeError, says="spans 3 cells")
        yield Rejected("f32[4]", sizes=(4,), error=ShapeError, says="2 or more axes")


overlap_add = op_function(OverlapAdd)

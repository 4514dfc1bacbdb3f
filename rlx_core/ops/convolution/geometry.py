"""The geometry of windows: their positions and counts, and checks.

Window `o` of an axis of `n` cells with `lo` cells of padding in front and `hi` behind reads cells `o·stride + k·dilation - lo`
for k below the kernel's size. There are `(lo + n + hi - dilation·(kernel - 1) - 1) // stride + 1` of them; an axis without
cells and without padding has no windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from attrs import evolve, field

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Dim, require
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape
from rlx_core.ops.structural import as_axes
from rlx_core.system.records import frozen

MOST_AXES = 3
"""The maximum number of spatial axes of convolutions and pools."""


@frozen
class Geometry:
    """The windows of some axes, one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def is_padded(self) -> bool:
        return any(self.lo) or any(self.hi)

    @property
    def extents(self) -> tuple[int, ...]:
        """Return the extent of a window: the cells from the first to the last that it reads, inclusive."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))

    @property
    def cells(self) -> int:
        """Return the number of cells of a window."""
        count = 1
        for k in self.kernel:
            count *= k
        return count

    @property
    def is_pointwise(self) -> bool:
        """Return whether window `o` is cell `o` alone."""
        return all(k == s == 1 for k, s in zip(self.kernel, self.stride, strict=True)) and not self.is_padded

    def counts(self, sizes: Sequence[Dim]) -> Shape:
        """Return the number of windows along each axis.

        Raises:
            ShapeError: A window is larger than its padded axis.
        """
        return tuple(self._count(i, n) for i, n in enumerate(sizes))

    def _count(self, i: int, n: Dim) -> Dim:
        lo, hi, extent, stride = self.lo[i], self.hi[i], self.extents[i], self.stride[i]
        padded = lo + n + hi
        if padded == 0:
            return 0
        if not require(">=", padded, extent):
            spanned = (
                f"{self.kernel[i]} cells"
                if self.dilation[i] == 1
                else f"{extent} cells ({self.kernel[i]} at steps of {self.dilation[i]})"
            )
            actual = f"{padded}" if lo == hi == 0 else f"{padded} ({lo} + {n} + {hi})"
            raise ShapeError(f"the kernel spans {spanned} of spatial axis {i}, which has {actual}")
        return (padded - extent) // stride + 1


@frozen(slots=False)
class Windowed(Op):
    """Base of ops with windows; an empty list of steps is 1 for every axis, of padding 0.

    Attributes:
        stride: The distance in cells between windows.
        dilation: The distance in cells between elements of a window.
        lo, hi: Cells of padding before and after.
    """

    stride: tuple[int, ...] = field(default=(), converter=as_axes, kw_only=True)
    dilation: tuple[int, ...] = field(default=(), converter=as_axes, kw_only=True)
    lo: tuple[int, ...] = field(default=(), converter=as_axes, kw_only=True)
    hi: tuple[int, ...] = field(default=(), converter=as_axes, kw_only=True)

    def unpadded(self) -> Self:
        """Return the same op for a padded operand."""
        return evolve(self, lo=(), hi=())

    def geometry(self, kernel: Sequence[Dim]) -> Geometry:
        """Return the windows of a kernel of these sizes.

        Raises:
            ShapeError: A size is unknown or below 1, a list has another length, a step is below 1 or a padding below 0.
        """
        rank = len(kernel)
        sizes = tuple(_known(k) for k in kernel)
        steps = {"stride": self.stride or (1,) * rank, "dilation": self.dilation or (1,) * rank}
        pads = {"lo": self.lo or (0,) * rank, "hi": self.hi or (0,) * rank}
        for least, lists in ((1, steps), (0, pads)):
            for name, values in lists.items():
                if len(values) != rank:
                    raise ShapeError(f"{name} has {len(values)} numbers for {rank} spatial axes")
                if min(values, default=least) < least:
                    raise ShapeError(f"{name} must be at least {least}, not {list(values)}")
        return Geometry(sizes, steps["stride"], steps["dilation"], pads["lo"], pads["hi"])


def _known(size: Dim) -> int:
    if not isinstance(size, int) or size < 1:
        raise ShapeError(f"the sizes of a kernel are known numbers of at least 1, not {size}")
    return size

"""Base classes of pools: the windows of spatial axes, after padding, which is a separate op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, INTEGERS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Category
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank
from rlx_core.ops.convolution.geometry import MOST_AXES, Geometry, Windowed
from rlx_core.ops.convolution.ways import merged, parted, windows_of
from rlx_core.ops.creation import scalar
from rlx_core.ops.movement import pad
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import all_batched, as_axes
from rlx_core.system.records import frozen

REAL = (*INTEGERS, *FLOATS)


@frozen(slots=False)
class SpatialPool(Windowed):
    """An op on the windows of `[n, c, l..]`, independent for each example and channel."""

    category: ClassVar[Category] = "reduction"
    kernel: tuple[int, ...] = field(converter=as_axes, kw_only=True)

    def windows(self, x: TensorType) -> Geometry:
        """Return the windows of an operand with one to three spatial axes.

        Raises:
            ShapeError: The kernel has another number of axes, or a window would contain padding alone.
        """
        expect_dtype("x", x, REAL, "a float or an integer")
        expect_rank("x", x, 3, 2 + MOST_AXES)
        if len(self.kernel) != x.rank - 2:
            raise ShapeError(f"kernel has {len(self.kernel)} numbers for {x.rank - 2} spatial axes")
        geometry = self.geometry(self.kernel)
        for axis, (lo, hi, extent) in enumerate(zip(geometry.lo, geometry.hi, geometry.extents, strict=True)):
            if max(lo, hi) >= extent:
                raise ShapeError(
                    f"padding {lo} and {hi} must be below {extent}, the cells that a window spans along axis {axis}"
                )
        return geometry

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        operands = [merged(v, 0, 1) for v in all_batched(size, x, is_batched)]
        return parted(self(*operands), 0, 1, size)


class PoolOp(SpatialPool):
    """One number for every window: `over` computes it, and `fill` is its neutral element."""

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape((*x.shape[:2], *self.windows(x).counts(x.shape[2:])))

    def decompose(self, x: Value) -> Value:
        geometry = self.geometry(self.kernel)
        if geometry.is_padded:
            return self.unpadded()(surrounded(x, geometry, self.fill(x)))
        return self.over(windows_of(x, geometry), tuple(range(2, 2 + geometry.rank)))

    def fill(self, x: Value) -> Any:
        """Return the value of padding."""
        return 0

    def over(self, windows: Value, axes: tuple[int, ...]) -> Value:
        raise NotImplementedError

    def cost(self, x: TensorType) -> Dim:
        return self.infer(x).size * self.geometry(self.kernel).cells


def surrounded(x: Value, geometry: Geometry, fill: Any) -> Value:
    """Return `x` with its padding."""
    padded: Value = pad(x, scalar(fill, x.dtype), lo=(0, 0, *geometry.lo), hi=(0, 0, *geometry.hi))
    return padded


def pool_samples() -> Iterator[Sample | Rejected]:
    """Yield samples: dtypes, numbers of axes, steps, padding, and invalid arguments."""
    for d in ("f32", "f64", "f16", "bf16", "i32"):
        yield Sample(f"{d}[2, 3, 6]", kernel=(2,), stride=(2,))
    yield Sample("f32[2, 2, 5, 6]", kernel=(3, 2), stride=(2, 1), lo=(1, 0), hi=(1, 1))
    yield Sample("f32[1, 2, 6, 5]", kernel=(2, 2), dilation=(3, 1))
    yield Sample("f64[1, 2, 3, 4, 4]", kernel=(2, 1, 3), stride=(1, 2, 1), lo=(0, 0, 1))
    yield Rejected("f32[1, 2, 3]", kernel=(6,), error=ShapeError, says="spans 6 cells of spatial axis 0, which has 3")
    yield Rejected("f32[1, 2, 3]", kernel=(2,), lo=(2,), error=ShapeError, says="padding 2 and 0 must be below 2")
    yield Rejected("f32[1, 2, 3]", kernel=(2, 2), error=ShapeError, says="2 numbers for 1")
    yield Rejected("f32[1, 2, 3]", kernel=(2,), stride=(0,), error=ShapeError, says="stride must be at least 1")
    yield Rejected("f32[2, 3]", kernel=(), error=ShapeError, says="3 to 5 axes")

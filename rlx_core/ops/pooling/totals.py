"""Pools that sum or multiply: sums, means and products of windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import field

from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import define_op
from rlx_core.ir.types import TensorType, expect_dtype
from rlx_core.ops.conversion import as_dtype, linear_jvp
from rlx_core.ops.creation import ones
from rlx_core.ops.pooling.pool import PoolOp, pool_samples
from rlx_core.ops.reduction import averaged, mean_axes, prod_axes
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import sum_axes


@define_op
class SumPool(PoolOp):
    """The sum of every window.

    Shapes:
        x: [n, c, l..]    ->    y: [n, c, o..]; one to three spatial axes, o as in `Conv`

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation, lo, hi: See `Windowed`.
    """

    jvp = linear_jvp

    def over(self, windows: Value, axes: tuple[int, ...]) -> Value:
        return sum_axes(windows, axes=axes)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from pool_samples()


sum_pool = op_function(SumPool)


@define_op
class AvgPool(PoolOp):
    """The mean of every window; integers are averaged as floats.

    Shapes:
        x: f[n, c, l..]    ->    y: f[n, c, o..]; one to three spatial axes, o as in `Conv`

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation, lo, hi: See `Windowed`.
        count_include_pad: Whether padding is averaged, as zeros.
    """

    count_include_pad: bool = field(default=True, kw_only=True)
    jvp = linear_jvp

    def prepare(self, x: Value) -> Value:
        return averaged(x)

    def infer(self, x: TensorType) -> TensorType:
        result = x.with_shape((*x.shape[:2], *self.windows(x).counts(x.shape[2:])))
        expect_dtype("x", x, FLOATS, "a float")
        return result

    def decompose(self, x: Value) -> Value:
        if self.count_include_pad or not self.geometry(self.kernel).is_padded:
            return super().decompose(x)
        steps: dict[str, Any] = {n: v for n, v in self.attributes().items() if n != "count_include_pad"}
        inside = sum_pool(ones((1, 1, *x.shape[2:]), x.dtype.accumulator), **steps)
        return as_dtype(sum_pool(wide(x), **steps) / inside, x.dtype)

    def over(self, windows: Value, axes: tuple[int, ...]) -> Value:
        return mean_axes(windows, axes=axes)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from pool_samples()
        yield Sample(
            "f32[2, 2, 5, 6]", kernel=(3, 2), stride=(2, 1), lo=(1, 0), hi=(1, 1), count_include_pad=False
        )  # fmt: skip


avg_pool = op_function(AvgPool)


@define_op
class ProdPool(PoolOp):
    """The product of every window; padding is ignored.

    Shapes:
        x: [n, c, l..]    ->    y: [n, c, o..]; one to three spatial axes, o as in `Conv`

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation, lo, hi: See `Windowed`.
    """

    def fill(self, x: Value) -> Any:
        return 1

    def over(self, windows: Value, axes: tuple[int, ...]) -> Value:
        return prod_axes(windows, axes=axes)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from pool_samples()


prod_pool = op_function(ProdPool)

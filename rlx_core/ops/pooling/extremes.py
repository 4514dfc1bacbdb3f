"""Pools of extremes: the largest and the smallest cell of every window. At a tie the derivative goes to the first one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rlx_core.ir.apply import op_function
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Kink, define_op
from rlx_core.ops.convolution.ways import fitted
from rlx_core.ops.pooling.pool import PoolOp, pool_samples, surrounded
from rlx_core.ops.pooling.positions import Extreme, added_at, extreme_of_nothing, pool_positions, taken
from rlx_core.ops.reduction import max_axes, min_axes
from rlx_core.ops.samples import Rejected, Sample


class ExtremePool(PoolOp):
    """Base of both ops."""

    extreme: ClassVar[Extreme]
    kinks: ClassVar = (Kink([[[1.0, 1.0, 1.0]]], takes="first", gives=[[[1.0, 0.0, 0.0]]], kernel=(3,)),)

    def fill(self, x: Value) -> Any:
        return extreme_of_nothing(x.dtype, self.extreme)

    def over(self, windows: Value, axes: tuple[int, ...]) -> Value:
        return (max_axes if self.extreme == "max" else min_axes)(windows, axes=axes)

    def _positions(self, x: Value) -> Value:
        geometry = self.geometry(self.kernel)
        padded = surrounded(x, geometry, self.fill(x)) if geometry.is_padded else x
        return pool_positions(padded, extreme=self.extreme, **self.attributes())

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (added_at(g, self._positions(x), x.shape[2:], self.geometry(self.kernel)),)

    def jvp(self, t: Sequence[Any], x: Value, *, y: Value) -> Value:
        geometry = self.geometry(self.kernel)
        return taken(fitted(t[0], geometry.lo, geometry.hi), self._positions(x), geometry)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from pool_samples()


@define_op
class MaxPool(ExtremePool):
    """The largest cell of every window; padding is ignored, and NaN propagates.

    Shapes:
        x: [n, c, l..]    ->    y: [n, c, o..]; one to three spatial axes, o as in `Conv`

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation, lo, hi: See `Windowed`.
    """

    extreme: ClassVar[Extreme] = "max"


@define_op
class MinPool(ExtremePool):
    """The smallest cell of every window; padding is ignored, and NaN propagates.

    Shapes:
        x: [n, c, l..]    ->    y: [n, c, o..]; one to three spatial axes, o as in `Conv`

    Attributes:
        kernel: The size of a window along each spatial axis.
        stride, dilation, lo, hi: See `Windowed`.
    """

    extreme: ClassVar[Extreme] = "min"


max_pool, min_pool = op_function(MaxPool), op_function(MinPool)

"""The row for evenly spaced numbers on devices without f64: pairs of f32 hold the bits that a single f32 would round away.

`Linspace` means a line in f64 that is rounded once. Here a position is two numbers of twelve digits, and so is the step except
for a remainder, so that products are exact; the rounding errors of sums are added at the end. The result is the rounded one or
its neighbour, and off by 2^-34 of the ends where they cancel.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rlx_core.codegen import check_kernel, formula_of, kernel_of
from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.dtypes import DType, f32, f64, u32
from rlx_core.ir.graph import Node, Value
from rlx_core.ir.op import define_op
from rlx_core.ir.types import TensorType
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import Creation, Linspace, iota
from rlx_core.ops.selection import where
from rlx_core.pipeline.kernels import Condition

_DIGITS = 12
"""Half of the bits of an f32: the product of two such numbers is exact."""


@define_op
class PairedLinspace(Creation):
    """The semantics of `Linspace`, in f32 alone, for a known number of numbers."""

    category: ClassVar = "elementwise"
    start: float
    stop: float
    num: int
    endpoint: bool
    dtype: DType

    def infer(self) -> TensorType:
        return TensorType(self.dtype, (self.num,))

    def decompose(self) -> Value:
        divisor = max(self.num - self.endpoint, 1)
        step = (self.stop - self.start) / divisor
        coarse, start = halved(step), float(np.float32(self.start))
        position = iota(axis=0, shape=(self.num,), dtype=u32)
        high, low = cast(position >> _DIGITS, to=f32), cast(position & ((1 << _DIGITS) - 1), to=f32)
        total, first_lost = exact_sum(high * (coarse * (1 << _DIGITS)), start)
        line, second_lost = exact_sum(total, low * coarse)
        lost = cast(position, to=f32) * (step - coarse) + (self.start - start)
        interpolated = line + (first_lost + second_lost + lost)
        return cast(where(position < divisor, interpolated, self.stop), to=self.dtype)


def halved(number: float) -> float:
    """The upper twelve digits of an f32."""
    return float((np.float32(number).view(np.uint32) & np.uint32(-1 << _DIGITS & 0xFFFFFFFF)).view(np.float32))


def exact_sum(x: Value, y: Value | float) -> tuple[Value, Value]:
    """Return x + y and its rounding error."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def spacing_rows(table: DeviceTable, language: Language) -> None:
    """Add the row in a language, where it has no f64."""

    def lacking(node: Node) -> str | None:
        return language.lacking(node.type.dtype)

    has_floats = Condition("floats that the device has", lambda node: lacking(node) is None, lacking)

    def spaced_in_pairs(node: Node, layout: Layout) -> Emitted:
        """Pairs of f32 in the place of f64."""
        op, (result,) = node.op, layout.results
        assert isinstance(op, Linspace), "registered for it alone"
        (num,) = result.type.static_shape
        formula = formula_of(PairedLinspace(op.start, op.stop, num, op.endpoint, op.dtype), ())
        assert formula is not None, "it is element-wise"
        return language.loop(check_kernel(kernel_of(formula, layout.operands, layout.results)))

    if language.lacking(f64) is not None:
        table.emitter(Linspace, when=has_floats, name="spaced_in_pairs", is_generated=True)(spaced_in_pairs)

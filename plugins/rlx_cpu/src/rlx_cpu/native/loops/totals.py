"""The accumulators of a kernel's reductions: several for a row along the lanes, one for rows that lie side by side."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.loops import Reduce
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import Variable, register_type, splat
from rlx_cpu.native.loops.reductions import UNROLL, combined, identity, over_lanes
from rlx_cpu.native.loops.values import KernelValues
from rlx_cpu.native.loops.walk import Position


@frozen(eq=False)
class Totals:
    """Code for the totals of one kernel's reductions."""

    values: KernelValues

    def reduce(self, number: int) -> Reduce:
        """The reduction of this number."""
        reduction = self.values.kernel.values[number]
        assert isinstance(reduction, Reduce), "totals are of reductions"
        return reduction

    def register(self, number: int) -> Any:
        """The type of an accumulator."""
        shape = self.values.shape
        in_lanes = shape.is_in_row or self.values.varies_lane[number]
        return register_type(self.reduce(number).dtype, shape.lanes if in_lanes else 1)

    def start(self, number: int) -> list[Variable]:
        """Return the accumulators, with the identity element of the reduction."""
        type, shape = self.register(number), self.values.shape
        is_long = not shape.has_known_lanes or shape.size // shape.lanes >= 2 * UNROLL
        count = UNROLL if shape.is_in_row and is_long else 1
        variables = [Variable.new(self.values.builder, type) for _ in range(count)]
        for each in variables:
            each.set(self.values.builder, identity(self.reduce(number), type))
        return variables

    def add(self, number: int, into: Variable, value: ir.LlvmValue, position: Position) -> None:
        """Combine a value into an accumulator; one that is equal in all lanes counts in each."""
        b, shape = self.values.builder, self.values.shape
        value = splat(b, value, shape.lanes) if shape.is_in_row else value
        before = into.value(b)
        after = combined(b, self.reduce(number), before, value)
        mask = self.values.memory.mask(position) if shape.is_in_row else None
        if mask is not None:
            after = b.select(mask, after, before)
        into.set(b, after)

    def finish(self, number: int, variables: list[Variable]) -> ir.LlvmValue:
        """Return the combined value of the accumulators."""
        b, reduce = self.values.builder, self.reduce(number)
        parts = [each.value(b) for each in variables]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [combined(b, reduce, x, y) for x, y in pairs]
        (total,) = parts
        return over_lanes(b, reduce, total) if self.values.shape.is_in_row else total

"""Reductions of few long rows, cut into chunks: a prologue leaves partial results in memory, the kernel combines them.

The number of chunks follows from the shape, chunks are computed identically by any thread, and they are combined in order, so
no bit of the result depends on the number of threads.
"""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.loops import Reduce
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, Variable, address, align_of, counting, scaled
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.loops.reductions import combined, identity
from rlx_cpu.native.loops.walk import Shape


@frozen(eq=False)
class Partials:
    """Memory of partial results: for each row or strip of rows, for each reduction and vector, one slot per chunk."""

    builder: ir.IRBuilder
    shape: Shape
    base: ir.LlvmValue

    def _place(self, unit: ir.LlvmValue, which: int, chunk: ir.LlvmValue) -> ir.LlvmValue:
        b, shape = self.builder, self.shape
        count = len(shape.plan.nests[0].reduces) * shape.strip
        line = b.add(scaled(b, unit, count), ir.LlvmConstant(I64, which))
        return address(b, self.base, scaled(b, b.add(scaled(b, line, shape.chunks), chunk), shape.slot_bytes))

    def put(self, unit: ir.LlvmValue, which: int, chunk: ir.LlvmValue, value: ir.LlvmValue) -> None:
        """Write the result of one chunk."""
        self.builder.store(value, self._place(unit, which, chunk), align=align_of(value.type))

    def total(self, unit: ir.LlvmValue, which: int, reduce: Reduce, type: Any) -> ir.LlvmValue:
        """All chunks combined, the first one first."""
        b = self.builder
        result = Variable.of(b, identity(reduce, type))
        with counting(b, 0, sized(b, self.shape.chunks)) as chunk:
            part = b.load(self._place(unit, which, chunk), typ=type, align=align_of(type))
            result.set(b, combined(b, reduce, result.value(b), part))
        return result.value(b)

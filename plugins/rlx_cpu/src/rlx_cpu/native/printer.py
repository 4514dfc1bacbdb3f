"""Loop kernels as LLVM IR: explicit vectors along one axis, tails under a mask, units of work split over threads.

This is the door; `printer_shape.py` decides how a kernel is walked, `printer_loops.py` writes the loops, and `printer_values.py`,
`printer_memory.py` and `printer_reductions.py` what stands in them. Each unit of work is computed in the same order by whoever
does it, so results do not depend on the number of threads.
"""

from __future__ import annotations

from attrs import frozen
from llvmlite import ir

from rlx_core.codegen.loops import Kernel
from rlx_core.codegen.schedule import schedule
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_cpu.native import scalar
from rlx_cpu.native.build import I64, POINTER, VOID
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.printer_loops import Loops
from rlx_cpu.native.printer_shape import Shape

__all__ = ["LlvmPrinter", "Printed"]


@frozen
class Printed:
    """What the printer made: the function's name and what it needs at run time."""

    function: str
    workspace: int
    shared_workspace: int
    has_status: bool
    uses_threads: bool


@frozen
class LlvmPrinter:
    """Prints kernels into one LLVM module for one instruction set."""

    module: ir.Module
    isa: Isa

    def refusal(self, op: Op, dtypes: tuple[DType, ...]) -> str | None:
        return scalar.refusal(op, dtypes)

    def print(self, kernel: Kernel, name: str) -> Printed:
        """The kernel as a function `void name(i8** buffers, i64 tid, i64 nthreads)`."""
        function = ir.Function(self.module, ir.FunctionType(VOID, [POINTER, I64, I64]), name)
        function.args[0].add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        if 0 in kernel.extents[: kernel.grid] or (0 in kernel.extents and not _has_finish(kernel)):
            builder.ret_void()
            return Printed(name, 0, 0, False, False)
        shape = Shape.of(kernel, self.isa)
        Loops(builder, shape).write()
        builder.ret_void()
        return Printed(name, shape.workspace, shape.shared_workspace, shape.has_status, shape.uses_threads)


def _has_finish(kernel: Kernel) -> bool:
    return bool(schedule(kernel).finish)

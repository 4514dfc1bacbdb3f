"""Loop kernels as LLVM IR: explicit vectors along one axis, tails under a mask, units of work split over threads.

This is the entry point; `walk.py` selects the iteration order of a kernel, `nests.py` writes the loops, and `values.py`,
`memory.py` and `reductions.py` their bodies. Each unit of work is computed in the same order by any thread, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from attrs import evolve

from rlx_core.codegen.loops import Bound, Kernel
from rlx_core.codegen.places import Fault
from rlx_core.codegen.schedule import schedule
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.op import Op
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import starting
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.loops.nests import Loops
from rlx_cpu.native.loops.walk import Shape


@frozen
class LlvmPrinter:
    """Prints kernels into one LLVM module for one instruction set."""

    module: ir.Module
    isa: Isa

    def print(self, kernel: Kernel, op: Op, name: str, *, in_chunks: bool = False) -> Emitted:
        """The kernel as a function `void name(i8** buffers, i64 tid, i64 nthreads)`, and its prologue if it has one.

        Args:
            op: The op that the kernel is the meaning of, for its fault.
            in_chunks: Whether rows are cut into chunks, though it is not known how many.
        """
        if 0 in kernel.extents[: kernel.grid] or (0 in kernel.extents and not schedule(kernel).finish):
            starting(self.module, name)[0].ret_void()
            return Emitted(name, uses_threads=False)
        shape = evolve(Shape.of(kernel, self.isa), is_told_chunks=in_chunks)
        prologue = f"{name}.parts" if shape.has_chunks else None
        if prologue is not None:
            parts, *_ = starting(self.module, prologue)
            Loops(parts, shape).write_parts()
            parts.ret_void()
        builder, *_ = starting(self.module, name)
        loops = Loops(builder, shape)
        if prologue is None:
            loops.write_units()
        else:
            loops.write_totals()
        builder.ret_void()
        shared = 0 if in_chunks else shape.shared_workspace  # which is passed in every call
        return Emitted(
            name,
            workspace=shape.workspace,
            shared_workspace=shared,
            fault=fault_of(kernel, op) if kernel.has_check else None,
            uses_threads=shape.uses_threads,
            prologue=prologue,
        )

    def print_parts(self, kernel: Kernel, name: str, parts: int) -> ir.Function:
        """Return the function of an element-wise kernel whose first axis counts `parts` parts; see `print`.

        A call for thread `i` of `parts` computes the part with index `i`. The last axis is the lane axis.
        """
        from rlx_cpu.native.loops.panels import PanelLoops  # here, because few programs have loads

        shape = Shape.of(kernel, self.isa, lane=len(kernel.extents) - 1)
        assert not shape.keeps_rows and not kernel.has_check, "the kernel is element-wise"  # noqa: PT018
        builder, *_ = starting(self.module, name)
        PanelLoops(builder, shape, parts).write()
        builder.ret_void()
        builder.function.linkage = "internal"
        return builder.function


def fault_of(kernel: Kernel, op: Op, sizes: DimBinding = DimBinding()) -> Fault:  # noqa: B008  # immutable
    """Return a kernel's fault for an index out of range. The status has only the index, so the text names all axis sizes."""
    checked = (v.size for v in kernel.values if isinstance(v, Bound) and v.is_checked)
    size_text = " or ".join(dict.fromkeys(str(sizes.bind(size)) for size in checked))
    return Fault(f"{op.name.rpartition('.')[2]}: index {{}} is outside an axis of {size_text} elements")

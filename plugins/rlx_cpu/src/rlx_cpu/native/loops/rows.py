"""Loop kernels as native kernels: every op whose meaning is one kernel of the loop language and whose steps have code."""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen.formula import flops_of, formula_of
from rlx_core.codegen.loop_rows import loop_rows
from rlx_core.codegen.loops import Bound, Kernel
from rlx_core.codegen.meaning import (
    is_read_in_place,
    is_settled,
    is_settled_in_place,
    loop_kernel,
    reason_against,
)
from rlx_core.codegen.places import Fault, Layout
from rlx_core.codegen.sizes import SizedKernel, sized_kernel
from rlx_core.codegen.unknown import said
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.kernels import Condition
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import Call, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.loops.printer import LlvmPrinter
from rlx_cpu.native.loops.walk import Shape, typical
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native


@lru_cache(maxsize=4096)
def reason_of(op: Op, types: tuple[TensorType | None, ...]) -> str | None:
    """Kept, because it is asked about every node of a long program."""
    return reason_against(NATIVE, op, types)


def reason_at(node: Node) -> str | None:
    """Return why a node is no native loop kernel."""
    return reason_of(node.op, node.operand_types)


is_loop = Condition(
    "a meaning that is one loop kernel of steps with native code",
    lambda node: reason_at(node) is None,
    reason_at,
    lambda node: is_settled(node.op, node.operand_types),
)

reads_in_place = Condition(
    "operands of a result's type to be read where that result is written",
    is_read_in_place,
    is_settled=is_settled_in_place,
)


def emit_loop(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """A kernel generated from the op's own meaning."""
    kernel = loop_kernel(node, layout)
    printed = LlvmPrinter(module, isa).print(kernel, name)
    return Emitted(
        printed.function,
        workspace=printed.workspace,
        shared_workspace=printed.shared_workspace,
        fault=fault_of(kernel, node.op) if printed.has_status else None,
        uses_threads=printed.uses_threads,
        prologue=printed.prologue,
        flops=flops_of(node.op, node.operand_types),
    )


def fault_of(kernel: Kernel, op: Op, sizes: DimBinding = DimBinding()) -> Fault:  # noqa: B008  # immutable
    """Return a kernel's fault for an index out of range. The status has only the index, so the text names all axis sizes."""
    checked = (v.size for v in kernel.values if isinstance(v, Bound) and v.is_checked)
    size_text = " or ".join(dict.fromkeys(str(sizes.bind(size)) for size in checked))
    return Fault(f"{op.name.rpartition('.')[2]}: index {{}} is outside an axis of {size_text} elements")


@frozen(eq=False)
class LoopForm:
    """A loop kernel for all sizes, with rows that are cut into chunks or with whole ones."""

    sized: SizedKernel
    shape: Shape
    op: Op

    @property
    def key(self) -> str:
        return f"{self.sized.kernel}{' in chunks' if self.shape.has_chunks else ''}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        call_sizes = self.sized.sizes(layout, sizes)
        if call_sizes is None:
            return None
        shape, kernel = self.shape, self.sized.kernel
        extents = tuple(call_sizes.bind(n).__index__() for n in shape.kernel.extents)
        known, is_empty = shape.of_size(extents), 0 in extents
        if (not is_empty and known.has_chunks) != shape.has_chunks:
            return None
        return Call(
            DimBinding({**call_sizes.sizes, **said(**known.numbers).sizes}) if shape.has_chunks else call_sizes,
            workspace=call_sizes.bind(shape.workspace).__index__(),
            shared_workspace=known.shared_workspace if shape.has_chunks else 0,
            fault=fault_of(kernel, self.op, call_sizes) if kernel.has_check else None,
            uses_threads=not is_empty and known.uses_threads,
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        printed = LlvmPrinter(module, self.shape.isa).print(self.sized.kernel, name, in_chunks=self.shape.has_chunks)
        return Emitted(
            printed.function,
            prologue=printed.prologue,
            workspace=int(self.shape.keeps_rows),
            fault=fault_of(self.sized.kernel, self.op) if printed.has_status else None,
        )


def sized_loop(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> LoopForm | None:
    """A kernel generated from the op's own meaning, for all sizes."""
    formula = formula_of(node.op, node.operand_types, is_for_all=True)
    if formula is None:
        return None
    if any(p is not None and p.type.dtype.is_complex for p in (*layout.operands, *layout.results)):
        return None  # the part (real or imaginary) of an access is encoded in its offset
    kernel = sized_kernel(formula, layout, sizes)
    shape = Shape.of(kernel.kernel, isa)
    # Transposed loads go through tiles, which are cut by the sizes of both sides.
    is_crossed = Shape.of(typical(kernel.kernel), isa).crossing is not None
    if is_crossed and shape.crossing is None:
        return None
    form = LoopForm(kernel, shape, node.op)
    return form if form.call(layout, sizes) is not None else evolve(form, shape=evolve(shape, is_told_chunks=True))


for row in loop_rows(NATIVE):
    native.register(
        *row.ops,
        when=(is_loop, reads_in_place) if row.is_read_in_place else is_loop,
        in_place=row.in_place,
        name=row.name,
        is_generated=True,
        sized=sized_loop,
    )(emit_loop)

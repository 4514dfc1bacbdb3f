"""Loop kernels as native kernels: every op whose meaning is one kernel of the loop language and whose steps have code."""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen.loop_rows import loop_rows
from rlx_core.codegen.loops import Bound
from rlx_core.codegen.meaning import is_read_in_place, loop_kernel, reason_against
from rlx_core.codegen.places import Fault, Layout
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.kernels import Condition
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.loops.printer import LlvmPrinter
from rlx_cpu.native.scalars.table import NATIVE
from rlx_cpu.native.table import native

__all__ = ["emit_loop"]


@lru_cache(maxsize=4096)
def reason_of(op: Op, types: tuple[TensorType | None, ...]) -> str | None:
    """Kept, because it is asked about every node of a long program."""
    return reason_against(NATIVE, op, types)


def reason_at(node: Node) -> str | None:
    """Why a node is no native loop kernel."""
    return reason_of(node.op, node.operand_types)


is_loop = Condition(
    "a meaning that is one loop kernel of steps with native code", lambda node: reason_at(node) is None, reason_at
)

reads_in_place = Condition("operands of a result's type to be read where that result is written", is_read_in_place)


def emit_loop(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """A kernel generated from the op's own meaning."""
    kernel = loop_kernel(node, layout)
    made = LlvmPrinter(module, isa).print(kernel, name)
    # The status holds the index alone, so of axes of several sizes the error names all.
    sizes = " or ".join(dict.fromkeys(str(v.size) for v in kernel.values if isinstance(v, Bound) and v.is_checked))

    title = node.op.name.rpartition(".")[2]
    fault = Fault(f"{title}: index {{}} is outside an axis of {sizes} elements") if made.has_status else None
    return Emitted(
        made.function,
        workspace=made.workspace,
        shared_workspace=made.shared_workspace,
        fault=fault,
        uses_threads=made.uses_threads,
        prologue=made.prologue,
    )


for row in loop_rows(NATIVE):
    native.register(
        *row.ops,
        when=(is_loop, reads_in_place) if row.is_read_in_place else is_loop,
        in_place=row.in_place,
        name=row.name,
        is_generated=True,
    )(emit_loop)

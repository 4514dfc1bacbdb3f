"""Running reductions as native kernels, for known or dynamic sizes: `cumulative.py` has the per-thread code."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.codegen.scans import RULES, ScanProblem
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.cumulative import Cumsum
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.scans.cumulative import emit_running, write_running
from rlx_cpu.native.scans.running import Running
from rlx_cpu.native.table import native


@condition("numbers that registers hold; of complex ones only sums", asks_sizes=False)
def is_running(node: Node) -> bool:
    dtype = node.types[0].dtype
    return (dtype.component if isinstance(node.op, Cumsum) else dtype) in DTYPES


def sized_running(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
    """Finds the form of a scan of any number of lines of any length; how many lie side by side is known."""
    scan, operands = ScanProblem.of(node.op, node.types[0]), len(node.operands)
    if not is_known(scan.inner) or scan.inner == 0:
        return None
    running = Running(scan, Running.of(node.op, layout.results[0].type, isa).block, isa)

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        known = Running.of(node.op, layout.results[0].type, isa)
        return Call(sizes, uses_threads=known.uses_threads) if known.block == running.block else None

    def emit(module: ir.Module, name: str) -> Emitted:
        write_running(module, running, operands, name)
        return Emitted(name)

    return KernelForm(f"{scan!r} of {operands} in {running.block}", call, emit)


native.register(*RULES, when=is_running, in_place=(0, 1), accepts_strides=False, name="running", sized=sized_running)(
    emit_running
)

"""Running reductions as native kernels, for known or dynamic sizes: `cumulative.py` has the per-thread code."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.codegen.scans import RULES, ScanProblem
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.cumulative import Cumsum
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Call, Emitted
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


@frozen(eq=False)
class RunningForm:
    """A scan of any number of lines of any length; how many lie side by side is known."""

    node: Node
    running: Running

    @property
    def key(self) -> str:
        return f"{self.running.scan!r} of {len(self.node.operands)} in {self.running.block}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        known = Running.of(self.node.op, layout.results[0].type, self.running.isa)
        return Call(sizes, uses_threads=known.uses_threads) if known.block == self.running.block else None

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        write_running(module, self.running, len(self.node.operands), name)
        return Emitted(name)


def sized_running(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> RunningForm | None:
    """Finds the form of a scan."""
    scan = ScanProblem.of(node.op, node.types[0])
    if not is_known(scan.inner) or scan.inner == 0:
        return None
    return RunningForm(node, Running(scan, Running.of(node.op, layout.results[0].type, isa).block, isa))


native.register(*RULES, when=is_running, in_place=(0, 1), accepts_strides=False, name="running", sized=sized_running)(
    emit_running
)

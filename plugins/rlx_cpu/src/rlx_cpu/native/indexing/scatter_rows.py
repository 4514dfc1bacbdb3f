"""Scatters as native kernels, for known or dynamic sizes: `scatter.py` has the per-thread code."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.contract import Call, Emitted
from rlx_cpu.native.indexing.scatter import emit_scatter, write_scatter
from rlx_cpu.native.indexing.scatter_plan import ScatterCut, Scattering, mode_of
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.table import native


@condition(
    "elements that registers hold, unless they are only overwritten, and no products of complex numbers",
    asks_sizes=False,
)
def is_combined(node: Node) -> bool:
    mode, dtype = mode_of(node.op), node.types[0].dtype
    return mode == "set" or (dtype.component in DTYPES and not (mode == "mul" and dtype.is_complex))


@frozen(eq=False)
class ScatterForm:
    """A scatter for all sizes, with known row lengths.

    Attributes:
        cut: Partition of the first size.
    """

    plan: Scattering
    cut: ScatterCut
    op: Op
    isa: Isa

    @property
    def key(self) -> str:
        return f"{self.plan!r} {self.cut!r}"

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """See `SizedForm.call`."""
        (indices,), machine = layout.required(-1), self.isa.machine
        known = Scattering.of(self.op, len(layout.operands), layout.results[0].type, indices.type)
        if known.cut(machine) != self.cut or known.problem.oob != self.plan.problem.oob:
            return None
        some = evolve(known, problem=evolve(known.problem, count=1))  # one index: a fault needs a place
        return Call(
            sizes,
            shared_workspace=max(known.shared_workspace(self.cut), int(self.needs_memory)),
            fault=some.fault,
            uses_threads=known.uses_threads(machine),
        )

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """See `SizedForm.emit`."""
        write_scatter(module, self.plan, self.cut, self.isa, name)
        return Emitted(name, shared_workspace=int(self.needs_memory), fault=self.plan.fault)

    @property
    def needs_memory(self) -> bool:
        """Whether there is a workspace."""
        return self.cut.is_chained or self.plan.is_rounded


def sized_scatter(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> ScatterForm | None:
    """Finds the form of a scatter."""
    indices, (lying,) = list(node.present())[-1].type, layout.required(-1)
    plan = Scattering.of(node.op, len(layout.operands), node.types[0], indices)
    known = Scattering.of(node.op, len(layout.operands), layout.results[0].type, lying.type)
    cut = known.cut(isa.machine)
    if not is_known(plan.inner) or plan.inner == 0 or (cut.is_chained and not is_known(plan.problem.size)):
        return None  # rows are moved in vectors, and large tables go past the caches
    return ScatterForm(plan, cut, node.op, isa)


native.register(ScatterAdd, when=is_combined, accepts_strides=False, name="scatter_add", sized=sized_scatter)(
    emit_scatter
)
native.register(Scatter, when=is_combined, in_place=(0,), accepts_strides=False, name="scatter", sized=sized_scatter)(
    emit_scatter
)

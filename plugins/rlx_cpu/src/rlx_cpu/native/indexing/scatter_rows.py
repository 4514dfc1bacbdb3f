"""Scatters as native kernels, for known or dynamic sizes: `scatter.py` has the per-thread code."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import evolve
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.indexing.scatter import emit_scatter, write_scatter
from rlx_cpu.native.indexing.scatter_plan import Scattering, mode_of
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


def sized_scatter(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
    """Finds the form of a scatter of rows whose length is known, with the partition of these sizes."""
    indices, machine = list(node.present())[-1].type, isa.machine

    def of_size(layout: Layout) -> Scattering:
        (indices,) = layout.required(-1)
        return Scattering.of(node.op, len(layout.operands), layout.results[0].type, indices.type)

    plan = Scattering.of(node.op, len(layout.operands), node.types[0], indices)
    cut = of_size(layout).cut(machine)
    if not is_known(plan.inner) or plan.inner == 0 or (cut.is_chained and not is_known(plan.problem.size)):
        return None  # rows are moved in vectors, and large tables go past the caches
    needs_memory = cut.is_chained or plan.is_rounded

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        known = of_size(layout)
        if known.cut(machine) != cut or known.problem.oob != plan.problem.oob:
            return None
        some = evolve(known, problem=evolve(known.problem, count=1))  # one index: a fault needs a place
        shared = max(known.shared_workspace(cut), int(needs_memory))
        return Call(sizes, shared_workspace=shared, fault=some.fault, uses_threads=known.uses_threads(machine))

    def emit(module: ir.Module, name: str) -> Emitted:
        write_scatter(module, plan, cut, isa, name)
        return Emitted(name, shared_workspace=int(needs_memory), fault=plan.fault)

    return KernelForm(f"{plan!r} {cut!r}", call, emit)


native.register(ScatterAdd, when=is_combined, accepts_strides=False, name="scatter_add", sized=sized_scatter)(
    emit_scatter
)
native.register(Scatter, when=is_combined, in_place=(0,), accepts_strides=False, name="scatter", sized=sized_scatter)(
    emit_scatter
)

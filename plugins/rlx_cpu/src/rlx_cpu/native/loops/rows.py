"""Loop kernels as native kernels: every op whose meaning is one kernel of the loop language and whose steps have code."""

from __future__ import annotations

from functools import lru_cache

from rlx_core.codegen.formula import flops_of, formula_of
from rlx_core.codegen.loop_rows import loop_rows
from rlx_core.codegen.meaning import (
    is_read_in_place,
    is_settled,
    is_settled_in_place,
    loop_kernel,
    reason_against,
)
from rlx_core.codegen.places import Layout
from rlx_core.codegen.sizes import SizedKernel, sized_kernel
from rlx_core.codegen.unknown import said
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.kernels import Condition
from rlx_core.system.records import evolve
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.loops.printer import LlvmPrinter, fault_of
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
    emitted = LlvmPrinter(module, isa).print(loop_kernel(node, layout), node.op, name)
    return evolve(emitted, flops=flops_of(node.op, node.operand_types))


def loop_form(sized: SizedKernel, shape: Shape, op: Op) -> KernelForm:
    """Return the form of a loop kernel, with rows that are cut into chunks or with whole ones."""
    kernel, isa, has_chunks = sized.kernel, shape.isa, shape.has_chunks

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        call_sizes = sized.sizes(layout, sizes)
        if call_sizes is None:
            return None
        extents = tuple(call_sizes.bind(n).__index__() for n in shape.kernel.extents)
        known, is_empty = shape.of_size(extents), 0 in extents
        if (not is_empty and known.has_chunks) != has_chunks:
            return None
        return Call(
            DimBinding({**call_sizes.sizes, **said(**known.numbers).sizes}) if has_chunks else call_sizes,
            workspace=call_sizes.bind(shape.workspace).__index__(),
            shared_workspace=known.shared_workspace if has_chunks else 0,
            fault=fault_of(kernel, op, call_sizes) if kernel.has_check else None,
            uses_threads=not is_empty and known.uses_threads,
        )

    def emit(module: ir.Module, name: str) -> Emitted:
        emitted = LlvmPrinter(module, isa).print(kernel, op, name, in_chunks=has_chunks)
        return evolve(emitted, workspace=int(shape.keeps_rows), shared_workspace=0, uses_threads=True)

    return KernelForm(f"{kernel}{' in chunks' if has_chunks else ''}", call, emit)


def sized_loop(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
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
    form = loop_form(kernel, shape, node.op)
    if form.call(layout, sizes) is not None:
        return form
    return loop_form(kernel, evolve(shape, is_told_chunks=True), node.op)


for row in loop_rows(NATIVE):
    native.register(
        *row.ops,
        when=(is_loop, reads_in_place) if row.is_read_in_place else is_loop,
        in_place=row.in_place,
        name=row.name,
        is_generated=True,
        sized=sized_loop,
    )(emit_loop)

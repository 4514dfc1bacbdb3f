"""Linear systems of up to 32 unknowns: threads take systems, and each is solved in the thread's memory."""

from __future__ import annotations

from typing import Final

from rlx_core.codegen.linear_systems import LinearSystems
from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.contract import MOST_PARTS, Emitted, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import KERNEL
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, offset, pointer_at, share
from rlx_cpu.native.systems.elimination import Elimination, SystemRows
from rlx_cpu.native.table import native

MAX_UNKNOWNS: Final = 32
"""Unknowns up to which a call of LAPACK takes longer."""

MAX_SIDES: Final = 128
"""Right sides up to which a system stays in the first cache."""


@condition(f"{MAX_UNKNOWNS} or fewer unknowns, and {MAX_SIDES} or fewer right sides")
def is_small(node: Node) -> bool:
    a, b = (v.type for v in node.present())
    if not (a.is_static and b.is_static):
        return False
    systems = LinearSystems.of(a, b)
    return systems.n <= MAX_UNKNOWNS and systems.k <= MAX_SIDES


@native.register(DenseSolve, BatchedDenseSolve, dtypes="f32 f64", when=is_small, accepts_strides=False, name="solve")
def emit_solve(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Gaussian elimination with partial pivoting, and a substitution; a singular system is NaN."""
    matrix, sides = (v.type for v in node.present())
    systems = LinearSystems.of(matrix, sides)
    rows, size = SystemRows.of(isa, systems.dtype, systems.n, systems.k), systems.dtype.itemsize
    b = ir.new_function(module, KERNEL, name)
    if not systems.stack * systems.n * systems.k:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    buffers, part, parts, thread = b.function.args
    a, right, x, scratch = (pointer_at(b, buffers, position) for position in range(4))
    start = offset(b, scratch, (thread, aligned(rows.nbytes)))
    with counting(b, *share(b, systems.stack, part, parts)) as s:
        system = Elimination.begin(b, rows, start)
        system.read(offset(b, a, (s, rows.n * rows.n * size)), 0, rows.n)
        system.read(offset(b, right, (s, rows.n * rows.k * size)), rows.n, rows.k)
        system.eliminate()
        system.substitute()
        system.write(offset(b, x, (s, rows.n * rows.k * size)), rows.n, rows.k)
    b.ret_void()
    return Emitted(
        name,
        workspace=rows.nbytes,
        uses_threads=systems.stack > 1 and systems.stack * rows.products >= isa.machine.serial_products,
        parts=max(1, min(MOST_PARTS, systems.stack)),
    )

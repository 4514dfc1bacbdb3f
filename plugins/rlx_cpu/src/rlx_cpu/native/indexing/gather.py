"""Gather of rows for elements of any dtype: the cases that the loop language omits, fill values and unusual dtypes.

A row is contiguous in both buffers, so it is copied as a block; units of work are blocks of rows.
"""

from __future__ import annotations

import numpy as np

from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.movement.boxes import Axis
from rlx_core.codegen.places import Fault, Layout
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.ops.indexing import Gather
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.indexing.indexed import check_indices, with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address, least, starting
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.movement.mover import WIDEST
from rlx_cpu.native.movement.mover_rows import Rows
from rlx_cpu.native.table import native, op_of

TABLE, INDICES, RESULT, STATUS = range(4)
"""The buffers."""


@frozen(eq=False)
class Reader:
    """Code that reads rows.

    Attributes:
        fill: The value for indices outside of the table, if they are not a fault.
    """

    builder: ir.IRBuilder
    isa: Isa
    problem: Indexing
    dtype: DType
    fill: complex
    buffers: ir.LlvmValue

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.problem.inner * self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Rows of a unit."""
        rows = max(1, self.isa.machine.movement.unit_nbytes // self.row)
        return max(1, min(rows, self.problem.count)) if is_known(self.problem.count) else rows

    @property
    def blocks(self) -> int:
        return (self.problem.count + self.rows - 1) // self.rows

    def read(self, tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> None:
        """This thread's share of the result."""
        b, problem = self.builder, self.problem
        table, indices, result = (pointer_at(b, self.buffers, k) for k in (TABLE, INDICES, RESULT))
        status = pointer_at(b, self.buffers, STATUS) if problem.has_fault else None
        filler = self._filler() if problem.oob == "fill" else None
        low, high = share(b, problem.lines * self.blocks, tid, nthreads)
        with counting(b, low, high) as unit:
            line, block = b.udiv(unit, sized(b, self.blocks)), b.urem(unit, sized(b, self.blocks))
            line_table = offset(b, table, (line, problem.size * self.row))
            to = offset(b, result, (line, problem.count * self.row))
            batch = b.udiv(line, sized(b, problem.outer))
            numbers = offset(b, indices, (batch, problem.count * problem.dtype.itemsize))
            start = b.mul(block, index(self.rows))
            end = b.add(start, index(self.rows))
            end = least(b, end, sized(b, problem.count))
            with counting(b, start, end) as i:
                place = offset(b, to, (i, self.row))

                def copy(number: ir.LlvmValue) -> None:
                    self._move(place, offset(b, line_table, (number, self.row)), self.dtype.itemsize)

                def clear() -> None:
                    if filler is not None:
                        self._move(place, filler, 0)

                with_index(b, problem, numbers, i, status, copy, clear)

    def _filler(self) -> ir.LlvmValue:
        """The address of one element with the fill."""
        b = self.builder
        bits = np.asarray(self.fill, self.dtype.numpy).tobytes() + bytes(2 * WIDEST)
        with b.goto_entry_block():
            element = b.alloca(I64, 2)
        for k in range(2):
            word = int.from_bytes(bits[k * WIDEST : (k + 1) * WIDEST], "little")
            b.store(index(word), address(b, element, k * WIDEST), align=8)
        return element

    def _move(self, to: ir.LlvmValue, source: ir.LlvmValue, step: int) -> None:
        """Write a row from elements with a stride of `step` bytes: an element's size, or 0 to repeat one element."""
        b, itemsize = self.builder, self.dtype.itemsize
        mover = Rows(b, self.isa, min(itemsize, WIDEST))
        if step:
            mover.row(to, source, Axis(self.row // mover.itemsize, mover.itemsize, mover.itemsize))
            return
        for part in range(0, itemsize, mover.itemsize):
            mover.row(address(b, to, part), address(b, source, part), Axis(self.problem.inner, itemsize, 0))


def emit_gather(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Rows copied from where the indices say."""
    table, indices = layout.required()
    problem = problem_of(node, table.type, indices.type)
    if layout.results[0].type.nbytes:
        write_gather(module, node, problem, isa, name)
    else:
        builder, buffers, *_ = starting(module, name)
        if problem.has_fault:
            check_indices(builder, problem, *(pointer_at(builder, buffers, k) for k in (INDICES, STATUS)))
        builder.ret_void()
    return Emitted(name, fault=named_fault(node, problem), uses_threads=uses_threads(layout, isa))


def write_gather(module: ir.Module, node: Node, problem: Indexing, isa: Isa, name: str) -> None:
    """Add the function that copies rows, which have bytes."""
    builder, buffers, tid, nthreads = starting(module, name)
    Reader(builder, isa, problem, node.types[0].dtype, op_of(node, Gather).fill, buffers).read(tid, nthreads)
    builder.ret_void()


def problem_of(node: Node, table: TensorType, indices: TensorType) -> Indexing:
    """Return the indexing problem of a gather from a table, for known or unknown sizes."""
    op = op_of(node, Gather)
    return Indexing.of(table, indices, op.axis, op.batch_dims, op.oob)


def named_fault(node: Node, problem: Indexing) -> Fault | None:
    return fault_of(problem, node.op.name.rpartition(".")[2])


def uses_threads(layout: Layout, isa: Isa) -> bool:
    """Return whether threads share a gather of known sizes."""
    return layout.results[0].type.static_nbytes >= isa.machine.serial_nbytes


def sized_gather(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
    """Finds the form of a gather, of rows whose length is known."""
    problem = problem_of(node, *(value.type for value in node.present()))
    if not is_known(problem.inner) or not problem.inner:
        return None

    def call(layout: Layout, sizes: DimBinding) -> Call | None:
        known = problem_of(node, *(place.type for place in layout.required()))
        if known.oob != problem.oob or not layout.results[0].type.nbytes:
            return None  # of no bytes, indices are only checked
        return Call(sizes, fault=named_fault(node, known), uses_threads=uses_threads(layout, isa))

    def emit(module: ir.Module, name: str) -> Emitted:
        write_gather(module, node, problem, isa, name)
        return Emitted(name, fault=named_fault(node, problem))

    return KernelForm(f"{node.op!r} {node.types[0].dtype} {problem!r}", call, emit)


native.register(Gather, priority=-1, accepts_strides=False, name="gather", sized=sized_gather)(emit_gather)

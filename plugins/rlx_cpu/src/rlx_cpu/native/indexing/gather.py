"""Reading rows at indices, for elements of any dtype: what the loop language leaves out, fills and odd dtypes.

A row is dense on both sides, so it is copied whole; units are blocks of rows.
"""

from __future__ import annotations

import numpy as np

from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.movement.boxes import Axis
from rlx_core.codegen.places import Layout
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ops.indexing import Gather
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.indexing.indexed import check_indices, with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.movement.boxes import starting
from rlx_cpu.native.movement.mover import WIDEST
from rlx_cpu.native.movement.mover_rows import Rows
from rlx_cpu.native.table import native

__all__ = ["emit_gather"]

TABLE, INDICES, RESULT, STATUS = range(4)
"""The buffers."""


@frozen(eq=False)
class Reader:
    """Code that reads rows.

    Attributes:
        fill: What is read outside, where that is no fault.
    """

    builder: ir.IRBuilder
    isa: Isa
    problem: Indexing
    dtype: DType
    fill: complex
    buffers: ir.Value

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.problem.inner * self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Rows of a unit."""
        return max(1, min(self.isa.machine.movement.unit_nbytes // self.row, self.problem.count))

    @property
    def blocks(self) -> int:
        return -(-self.problem.count // self.rows)

    def read(self, tid: ir.Value, nthreads: ir.Value) -> None:
        """This thread's share of the result."""
        b, problem = self.builder, self.problem
        table, indices, result = (pointer_at(b, self.buffers, k) for k in (TABLE, INDICES, RESULT))
        status = pointer_at(b, self.buffers, STATUS) if problem.has_fault else None
        filler = self._filler() if problem.oob == "fill" else None
        low, high = share(b, problem.lines * self.blocks, tid, nthreads)
        with counting(b, low, high) as unit:
            line, block = b.udiv(unit, index(self.blocks)), b.urem(unit, index(self.blocks))
            own = offset(b, table, (line, problem.size * self.row))
            to = offset(b, result, (line, problem.count * self.row))
            batch = b.udiv(line, index(problem.outer))
            numbers = offset(b, indices, (batch, problem.count * problem.dtype.itemsize))
            start = b.mul(block, index(self.rows))
            end = b.add(start, index(self.rows))
            end = b.select(b.icmp_signed("<", end, index(problem.count)), end, index(problem.count))
            with counting(b, start, end) as i:
                place = offset(b, to, (i, self.row))

                def copy(found: ir.Value) -> None:
                    self._move(place, offset(b, own, (found, self.row)), self.dtype.itemsize)

                def clear() -> None:
                    if filler is not None:
                        self._move(place, filler, 0)

                with_index(b, problem, numbers, i, status, copy, clear)

    def _filler(self) -> ir.Value:
        """The address of one element with the fill."""
        b = self.builder
        bits = np.asarray(self.fill, self.dtype.numpy).tobytes() + bytes(2 * WIDEST)
        with b.goto_entry_block():
            found = b.alloca(I64, 2)
        for k in range(2):
            word = int.from_bytes(bits[k * WIDEST : (k + 1) * WIDEST], "little")
            b.store(index(word), address(b, found, k * WIDEST), align=8)
        return found

    def _move(self, to: ir.Value, source: ir.Value, step: int) -> None:
        """A row from elements `step` bytes apart: the size of one, or 0 for the same again and again."""
        b, itemsize = self.builder, self.dtype.itemsize
        mover = Rows(b, self.isa, min(itemsize, WIDEST))
        if step:
            mover.row(to, source, Axis(self.row // mover.itemsize, mover.itemsize, mover.itemsize))
            return
        for part in range(0, itemsize, mover.itemsize):
            mover.row(address(b, to, part), address(b, source, part), Axis(self.problem.inner, itemsize, 0))


def emit_gather(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Rows copied from where the indices say."""
    op = node.op
    assert isinstance(op, Gather), "registered for gathers"
    table, indices = layout.operands
    assert table is not None, "there is a table"
    assert indices is not None, "there are indices"
    problem = Indexing.of(table.type, indices.type, op.axis, op.batch_dims, op.oob)
    builder, buffers, tid, nthreads = starting(module, name)
    reader = Reader(builder, isa, problem, table.type.dtype, op.fill, buffers)
    nbytes = problem.lines * problem.count * reader.row
    if nbytes:
        reader.read(tid, nthreads)
    elif problem.has_fault:
        check_indices(builder, problem, *(pointer_at(builder, buffers, k) for k in (INDICES, STATUS)))
    builder.ret_void()
    fault = fault_of(problem, node.op.name.rpartition(".")[2])
    return Emitted(name, fault=fault, uses_threads=nbytes >= isa.machine.serial_nbytes)


native.register(Gather, priority=-1, accepts_strides=False, name="gather")(emit_gather)

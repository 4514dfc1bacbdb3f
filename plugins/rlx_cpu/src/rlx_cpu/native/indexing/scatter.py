"""Writing at indices: each thread owns a part of the result and walks all indices in order.

So duplicates combine in index order and no bit depends on the number of threads. The part is some tables and a block of columns
of them where there are enough of those, and otherwise a range of rows, past whose end or start an index is skipped.
"""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.arithmetic import of_two
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.indexing.chains import Chains
from rlx_cpu.native.indexing.indexed import check_indices, with_index
from rlx_cpu.native.indexing.scatter_plan import ScatterCut, Scattering
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address, copy_bytes, fill_bytes, starting
from rlx_cpu.native.llvm.elements import load_elements, pieces, store_elements
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import sized

UNROLL = 4


@frozen(eq=False)
class Writer:
    """Code that fills one result."""

    builder: ir.IRBuilder
    isa: Isa
    plan: Scattering
    cut: ScatterCut
    buffers: ir.LlvmValue

    @property
    def blocks(self) -> int:
        """Blocks of columns."""
        return -(-self.plan.inner // self.cut.block)

    def write(self, tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> None:
        if self.cut.shares_rows:
            low, high = share(self.builder, self.plan.problem.size, tid, nthreads)
            with counting(self.builder, 0, self.plan.problem.lines) as line:
                self._part(line, 0, self.plan.inner, (low, high))
            return
        low, high = share(self.builder, self.plan.problem.lines * self.blocks, tid, nthreads)
        b, left = self.builder, self.plan.inner % self.cut.block
        with counting(b, low, high) as unit:
            block, line = b.urem(unit, index(self.blocks)), b.udiv(unit, index(self.blocks))
            start = b.mul(block, index(self.cut.block))
            if not left:
                self._part(line, start, self.cut.block, None)
                return
            with b.if_else(b.icmp_unsigned("==", block, index(self.blocks - 1))) as (last, full):
                with last:
                    self._part(line, start, left, None)
                with full:
                    self._part(line, start, self.cut.block, None)

    def _part(
        self, line: ir.LlvmValue, start: ir.LlvmValue | int, width: int, rows: tuple[ir.LlvmValue, ir.LlvmValue] | None
    ) -> None:
        """A block of columns of one table, or a range of its rows."""
        b, problem, size = self.builder, self.plan.problem, self.plan.dtype.itemsize
        operands = 3 if self.plan.is_started else 2
        first = b.mul(start, index(size)) if isinstance(start, ir.LlvmValue) else index(start * size)
        table = result = offset(b, pointer_at(b, self.buffers, operands), (line, problem.size * self.plan.row), first)
        updates = offset(b, pointer_at(b, self.buffers, operands - 2), (line, problem.count * self.plan.row), first)
        low, high = rows or (index(0), sized(b, problem.size))
        if self.plan.is_rounded:
            table = offset(b, pointer_at(b, self.buffers, operands + 1), (line, problem.size * self.plan.pitch))
            table = offset(b, table, (first, self.plan.accumulator.itemsize // size))
        origin = None
        if self.plan.is_started:
            origin = offset(b, pointer_at(b, self.buffers, 0), (line, problem.size * self.plan.row), first)
        self._begin(table, origin, low, high, width)
        indices = pointer_at(b, self.buffers, operands - 1)
        batch = b.udiv(line, sized(b, problem.outer))
        indices = offset(b, indices, (batch, problem.count * problem.dtype.itemsize))
        status = pointer_at(b, self.buffers, operands + 1 + self.plan.is_rounded) if problem.has_fault else None
        with counting(b, 0, problem.count) as i:

            def use(place: ir.LlvmValue) -> None:
                new = offset(b, updates, (i, self.plan.row))
                if rows is None:
                    self._combine(offset(b, table, (place, self.plan.pitch)), new, width)
                    return
                is_mine = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<", place, high))
                with b.if_then(is_mine):
                    self._combine(offset(b, table, (place, self.plan.pitch)), new, width)

            with_index(b, problem, indices, i, status, use)
        if self.plan.is_rounded:
            self._converted(table, self.plan.accumulator, result, self.plan.dtype, low, high, width)

    def _converted(
        self,
        source: ir.LlvmValue,
        source_dtype: DType,
        to: ir.LlvmValue,
        target: DType,
        low: ir.LlvmValue,
        high: ir.LlvmValue,
        width: int,
    ) -> None:
        """Rows `low` to `high` of a part in the dtype of another table."""
        b, lanes = self.builder, self.isa.lanes(self.plan.accumulator)
        full_columns = width // lanes * lanes
        with counting(b, low, high) as n:
            read = offset(b, source, (n, self.plan.inner * source_dtype.itemsize))
            written = offset(b, to, (n, self.plan.inner * target.itemsize))

            def move(column: ir.LlvmValue, count: int) -> None:
                value = load_elements(
                    b, self.isa, source_dtype, offset(b, read, (column, source_dtype.itemsize)), count
                )
                store_elements(b, self.isa, target, value, offset(b, written, (column, target.itemsize)))

            with counting(b, 0, full_columns, lanes) as column:
                move(column, lanes)
            for start, count in pieces(full_columns, width, lanes):
                move(index(start), count)

    def _begin(
        self, to: ir.LlvmValue, origin: ir.LlvmValue | None, low: ir.LlvmValue, high: ir.LlvmValue, width: int
    ) -> None:
        """Copy the initial value of rows `low` to `high` of a part, unless it is in place already."""
        b = self.builder
        if origin is None:
            self._start(to, None, low, high, width)
        elif self.plan.is_rounded:
            self._converted(origin, self.plan.dtype, to, self.plan.accumulator, low, high, width)
        else:
            with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(origin, I64), b.ptrtoint(to, I64))):
                self._start(to, origin, low, high, width)

    def _start(
        self, to: ir.LlvmValue, source: ir.LlvmValue | None, low: ir.LlvmValue, high: ir.LlvmValue, width: int
    ) -> None:
        """Rows `low` to `high` of a part copied, or cleared."""
        b, nbytes = self.builder, width * self.plan.accumulator.itemsize
        if width == self.plan.inner:
            first_byte, size = b.mul(low, index(self.plan.pitch)), b.mul(b.sub(high, low), index(self.plan.pitch))
            self._fill(address(b, to, first_byte), None if source is None else address(b, source, first_byte), size)
            return
        with counting(b, low, high) as n:
            source_row = None if source is None else offset(b, source, (n, self.plan.pitch))
            self._fill(offset(b, to, (n, self.plan.pitch)), source_row, index(nbytes))

    def _fill(self, to: ir.LlvmValue, source: ir.LlvmValue | None, nbytes: ir.LlvmValue) -> None:
        if source is None:
            fill_bytes(self.builder, to, 0, nbytes)
        else:
            copy_bytes(self.builder, to, source, nbytes)

    def _combine(self, to: ir.LlvmValue, new: ir.LlvmValue, width: int) -> None:
        """One update into one row."""
        b, size = self.builder, self.plan.dtype.itemsize
        if self.plan.mode == "set":
            self._fill(to, new, index(width * size))
            return
        lanes = self.isa.lanes(self.plan.accumulator)
        bundle = lanes * UNROLL
        bundles = width // bundle * bundle
        if bundles > bundle:
            with counting(b, 0, bundles, bundle) as k:
                for j in range(UNROLL):
                    self._vector(
                        offset(b, to, (k, self.plan.accumulator.itemsize)), offset(b, new, (k, size)), j * lanes, lanes
                    )
        else:
            bundles = 0
        for start, count in pieces(bundles, width, lanes):
            self._vector(to, new, start, count)

    def _vector(self, to: ir.LlvmValue, new: ir.LlvmValue, start: int, lanes: int) -> None:
        b = self.builder
        place = address(b, to, start * self.plan.accumulator.itemsize)
        old = load_elements(b, self.isa, self.plan.accumulator, place, lanes)
        update = load_elements(b, self.isa, self.plan.dtype, address(b, new, start * self.plan.dtype.itemsize), lanes)
        store_elements(
            b, self.isa, self.plan.accumulator, of_two(b, self.plan.mode, self.plan.accumulator, old, update), place
        )


def emit_scatter(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Updates combined in index order, the result shared out over threads."""
    (indices,) = layout.required(-1)
    plan = Scattering.of(node.op, len(layout.operands), layout.results[0].type, indices.type)
    cut = plan.cut(isa.machine)
    write_scatter(module, plan, cut, isa, name)
    return Emitted(
        name,
        shared_workspace=plan.shared_workspace(cut),
        fault=plan.fault,
        uses_threads=plan.uses_threads(isa.machine),
    )


def write_scatter(module: ir.Module, plan: Scattering, cut: ScatterCut, isa: Isa, name: str) -> None:
    """The function of a scatter."""
    builder, buffers, tid, nthreads = starting(module, name)
    problem = plan.problem
    if cut.is_chained:
        updates, numbers, table, workspace = (pointer_at(builder, buffers, k) for k in range(4))
        if problem.has_fault:
            check_indices(builder, problem, numbers, pointer_at(builder, buffers, 4))
        Chains(builder, isa, problem, plan.dtype, plan.inner, updates, numbers, table, workspace).write(tid, nthreads)
    elif problem.lines * plan.inner:
        Writer(builder, isa, plan, cut, buffers).write(tid, nthreads)
    elif problem.has_fault:
        places = (plan.operands - 1, plan.operands + 1)
        check_indices(builder, problem, *(pointer_at(builder, buffers, k) for k in places))
    builder.ret_void()

"""Writing at indices: each thread owns a part of the result and walks all indices in order.

So duplicates combine in index order and no bit depends on the number of threads. The part is some tables and a block of columns
of them where there are enough of those, and otherwise a range of rows, past whose end or start an index is skipped.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rlx_core.codegen.indexing import Indexing, fault_of
from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.arithmetic import larger, smaller
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import Node
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.indexing.chains import Chains, is_worth_chains
from rlx_cpu.native.indexing.indexed import check_indices, with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I8, I64, VOID, address, declare
from rlx_cpu.native.llvm.elements import load_elements, pieces, store_elements
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.movement.boxes import starting
from rlx_cpu.native.table import native

__all__ = ["emit_scatter"]

UNROLL = 4


def _parts(dtype: DType) -> DType:
    """The dtype of what is added: the two parts of a complex number are added by themselves."""
    return dtype.component


@condition("elements that registers hold, unless they are only overwritten", asks_sizes=False)
def is_combined(node: Node) -> bool:
    return _mode(node.op) == "set" or _parts(node.types[0].dtype) in DTYPES


def _mode(op: Any) -> str:
    return op.mode if isinstance(op, Scatter) else "add"


@frozen(eq=False)
class Writer:
    """Code that fills one result.

    Attributes:
        dtype: Of what is combined.
        inner: Of those, in a row.
        is_started: Whether the result starts as an operand, not as zeros.

    Narrow floats are added up in f32, in a table of the workspace, and rounded once at the end.
    """

    builder: ir.IRBuilder
    isa: Isa
    problem: Indexing
    mode: str
    dtype: DType
    inner: int
    buffers: ir.Value
    is_started: bool

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.inner * self.dtype.itemsize

    @property
    def is_rounded(self) -> bool:
        return self.mode != "set" and self.dtype.is_narrow

    @property
    def accumulator(self) -> DType:
        """The dtype that updates are combined in."""
        return self.dtype.accumulator if self.is_rounded else self.dtype

    @property
    def pitch(self) -> int:
        """Bytes of a row of what is combined."""
        return self.inner * self.accumulator.itemsize

    @property
    def block(self) -> int:
        """Elements of a block of columns."""
        sizes = self.isa.machine.indexing
        is_whole = self.problem.lines >= sizes.fewest_units or self.inner < 2 * sizes.columns
        return self.inner if is_whole else sizes.columns

    @property
    def blocks(self) -> int:
        return -(-self.inner // self.block) if self.block else 0

    @property
    def shares_rows(self) -> bool:
        """Whether threads have ranges of rows."""
        return self.problem.lines * self.blocks < self.isa.machine.indexing.fewest_units

    def write(self, tid: ir.Value, nthreads: ir.Value) -> None:
        if self.shares_rows:
            low, high = share(self.builder, self.problem.size, tid, nthreads)
            with counting(self.builder, 0, self.problem.lines) as line:
                self._part(line, 0, self.inner, (low, high))
            return
        low, high = share(self.builder, self.problem.lines * self.blocks, tid, nthreads)
        b, left = self.builder, self.inner % self.block
        with counting(b, low, high) as unit:
            block, line = b.urem(unit, index(self.blocks)), b.udiv(unit, index(self.blocks))
            start = b.mul(block, index(self.block))
            if not left:
                self._part(line, start, self.block, None)
                return
            with b.if_else(b.icmp_unsigned("==", block, index(self.blocks - 1))) as (last, whole):
                with last:
                    self._part(line, start, left, None)
                with whole:
                    self._part(line, start, self.block, None)

    def _part(self, line: ir.Value, start: ir.Value | int, width: int, rows: tuple[ir.Value, ir.Value] | None) -> None:
        """A block of columns of one table, or a range of its rows."""
        b, problem, size = self.builder, self.problem, self.dtype.itemsize
        operands = 3 if self.is_started else 2
        first = b.mul(start, index(size)) if isinstance(start, ir.Value) else index(start * size)
        table = result = offset(b, pointer_at(b, self.buffers, operands), (line, problem.size * self.row), first)
        updates = offset(b, pointer_at(b, self.buffers, operands - 2), (line, problem.count * self.row), first)
        low, high = rows or (index(0), index(problem.size))
        if self.is_rounded:
            table = offset(b, pointer_at(b, self.buffers, operands + 1), (line, problem.size * self.pitch))
            table = offset(b, table, (first, self.accumulator.itemsize // size))
        origin = None
        if self.is_started:
            origin = offset(b, pointer_at(b, self.buffers, 0), (line, problem.size * self.row), first)
        self._begin(table, origin, low, high, width)
        indices = pointer_at(b, self.buffers, operands - 1)
        batch = b.udiv(line, index(problem.outer))
        indices = offset(b, indices, (batch, problem.count * problem.dtype.itemsize))
        status = pointer_at(b, self.buffers, operands + 1 + self.is_rounded) if problem.has_fault else None
        with counting(b, 0, problem.count) as i:

            def use(place: ir.Value) -> None:
                new = offset(b, updates, (i, self.row))
                if rows is None:
                    self._combine(offset(b, table, (place, self.pitch)), new, width)
                    return
                is_mine = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<", place, high))
                with b.if_then(is_mine):
                    self._combine(offset(b, table, (place, self.pitch)), new, width)

            with_index(b, problem, indices, i, status, use)
        if self.is_rounded:
            self._converted(table, self.accumulator, result, self.dtype, low, high, width)

    def _converted(
        self, source: ir.Value, own: DType, to: ir.Value, target: DType, low: ir.Value, high: ir.Value, width: int
    ) -> None:
        """Rows `low` to `high` of a part in the dtype of another table."""
        b, lanes = self.builder, self.isa.lanes(self.accumulator)
        whole = width // lanes * lanes
        with counting(b, low, high) as n:
            read = offset(b, source, (n, self.inner * own.itemsize))
            written = offset(b, to, (n, self.inner * target.itemsize))

            def move(at: ir.Value, count: int) -> None:
                value = load_elements(b, self.isa, own, offset(b, read, (at, own.itemsize)), count)
                store_elements(b, self.isa, target, value, offset(b, written, (at, target.itemsize)))

            with counting(b, 0, whole, lanes) as at:
                move(at, lanes)
            for start, count in pieces(whole, width, lanes):
                move(index(start), count)

    def _begin(self, to: ir.Value, origin: ir.Value | None, low: ir.Value, high: ir.Value, width: int) -> None:
        """What was there, in rows `low` to `high` of a part; nothing is to be done where it lies there already."""
        b = self.builder
        if origin is None:
            self._start(to, None, low, high, width)
        elif self.is_rounded:
            self._converted(origin, self.dtype, to, self.accumulator, low, high, width)
        else:
            with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(origin, I64), b.ptrtoint(to, I64))):
                self._start(to, origin, low, high, width)

    def _start(self, to: ir.Value, source: ir.Value | None, low: ir.Value, high: ir.Value, width: int) -> None:
        """Rows `low` to `high` of a part copied, or cleared."""
        b, nbytes = self.builder, width * self.accumulator.itemsize
        if width == self.inner:
            at, size = b.mul(low, index(self.pitch)), b.mul(b.sub(high, low), index(self.pitch))
            self._fill(address(b, to, at), None if source is None else address(b, source, at), size)
            return
        with counting(b, low, high) as n:
            own = None if source is None else offset(b, source, (n, self.pitch))
            self._fill(offset(b, to, (n, self.pitch)), own, index(nbytes))

    def _fill(self, to: ir.Value, source: ir.Value | None, nbytes: ir.Value) -> None:
        b, is_volatile = self.builder, ir.Constant(ir.IntType(1), 0)
        if source is None:
            function = declare(b.module, "llvm.memset.p0.i64", VOID, [to.type, I8, I64, ir.IntType(1)])
            b.call(function, [to, ir.Constant(I8, 0), nbytes, is_volatile])
        else:
            function = declare(b.module, "llvm.memcpy.p0.p0.i64", VOID, [to.type, to.type, I64, ir.IntType(1)])
            b.call(function, [to, source, nbytes, is_volatile])

    def _combine(self, to: ir.Value, new: ir.Value, width: int) -> None:
        """One update into one row."""
        b, size = self.builder, self.dtype.itemsize
        if self.mode == "set":
            self._fill(to, new, index(width * size))
            return
        lanes = self.isa.lanes(self.accumulator)
        bundle = lanes * UNROLL
        bundles = width // bundle * bundle
        if bundles > bundle:
            with counting(b, 0, bundles, bundle) as k:
                for j in range(UNROLL):
                    self._vector(
                        offset(b, to, (k, self.accumulator.itemsize)), offset(b, new, (k, size)), j * lanes, lanes
                    )
        else:
            bundles = 0
        for at, count in pieces(bundles, width, lanes):
            self._vector(to, new, at, count)

    def _vector(self, to: ir.Value, new: ir.Value, at: int, lanes: int) -> None:
        b = self.builder
        place = address(b, to, at * self.accumulator.itemsize)
        old = load_elements(b, self.isa, self.accumulator, place, lanes)
        update = load_elements(b, self.isa, self.dtype, address(b, new, at * self.dtype.itemsize), lanes)
        store_elements(b, self.isa, self.accumulator, combined(b, self.mode, self.accumulator, old, update), place)


def combined(b: ir.IRBuilder, mode: str, dtype: DType, old: ir.Value, new: ir.Value) -> ir.Value:
    """An element and an update as one."""
    if mode == "add":
        return b.fadd(old, new) if dtype.is_float else b.add(old, new)
    return (larger if mode == "max" else smaller)(b, dtype, old, new)


def emit_scatter(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Updates combined in index order, the result shared out over threads."""
    op: Any = node.op
    result = layout.results[0].type
    indices = layout.operands[-1]
    assert indices is not None, "there are indices"
    problem = Indexing.of(result, indices.type, op.axis, op.batch_dims, op.oob)
    mode = _mode(op)
    # What is overwritten is only bits, and a complex number is two.
    element = dtype(f"u{8 * min(result.dtype.itemsize, 8)}") if mode == "set" else _parts(result.dtype)
    inner = problem.inner * result.dtype.itemsize // element.itemsize
    builder, buffers, tid, nthreads = starting(module, name)
    writer = Writer(builder, isa, problem, mode, element, inner, buffers, isinstance(op, Scatter))
    nbytes = (problem.size + problem.count) * problem.lines * writer.row
    is_chained = isinstance(op, ScatterAdd) and is_worth_chains(problem, writer.row, isa.machine)
    if is_chained:
        updates, numbers, table, workspace = (pointer_at(builder, buffers, k) for k in range(4))
        if problem.has_fault:
            check_indices(builder, problem, numbers, pointer_at(builder, buffers, 4))
        Chains(builder, isa, problem, element, inner, updates, numbers, table, workspace).write(tid, nthreads)
    elif problem.lines * inner:
        writer.write(tid, nthreads)
    elif problem.has_fault:
        places = (len(layout.operands) - 1, len(layout.operands) + 1)
        check_indices(builder, problem, *(pointer_at(builder, buffers, k) for k in places))
    builder.ret_void()
    fault = fault_of(problem, node.op.name.rpartition(".")[2])
    nbytes_shared = Chains.nbytes(problem) if is_chained else 0
    if not is_chained and writer.is_rounded and problem.lines * inner:
        nbytes_shared = max(problem.lines * problem.size * writer.pitch, 1)
    return Emitted(name, shared_workspace=nbytes_shared, fault=fault, uses_threads=nbytes >= isa.machine.serial_nbytes)


native.register(ScatterAdd, when=is_combined, accepts_strides=False, name="scatter_add")(emit_scatter)
native.register(Scatter, when=is_combined, in_place=(0,), accepts_strides=False, name="scatter")(emit_scatter)

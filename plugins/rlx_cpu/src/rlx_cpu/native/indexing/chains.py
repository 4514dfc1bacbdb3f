"""Scatter-add by rows of the result: the updates of each row are linked in a list, so that its sum is written once.

Otherwise a table larger than the caches is cleared, and then read and written again for every update. Each thread links the
updates of its rows, from the last to the first, so that a row's first update heads its list; the order of summation is that of
`scatter.py`, and no bit depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import evolve

from rlx_core.codegen.indexing import Indexing
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen
from rlx_cpu.native.indexing.indexed import with_index
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, I32, I64, Variable, address, fill_bytes, prefetch
from rlx_cpu.native.llvm.elements import held_type, load_elements, pieces, store_elements
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import either_way, wants_nontemporal
from rlx_cpu.native.llvm.simd import counting, index, offset, share
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.machine import CpuMachine

INTERLEAVED = 8
"""Vectors of a row that are summed in one walk along its chain."""

_WORD = 4  # bytes of a link


def is_worth_chains(problem: Indexing, row: int, machine: CpuMachine) -> bool:
    """Return whether a table with rows of so many bytes is large, and has not many rows without updates.

    Where a table stays in a core's cache, one update after the other costs little.
    """
    is_large = problem.size * row > machine.l2_nbytes and row >= machine.indexing.chained_row_nbytes
    return problem.lines == 1 and is_large and problem.size <= 4 * problem.count < 1 << 31


@frozen(eq=False)
class Chains:
    """Code that adds updates up.

    Attributes:
        dtype: Dtype of the elements; elements of two bytes are added in f32 and rounded once.
        inner: Elements in a row.
        workspace: Memory for heads and links.
        is_nontemporal: Whether whole vectors go past the caches.
    """

    builder: ir.IRBuilder
    isa: Isa
    problem: Indexing
    dtype: DType
    inner: int
    updates: ir.LlvmValue
    indices: ir.LlvmValue
    result: ir.LlvmValue
    workspace: ir.LlvmValue
    is_nontemporal: bool = False

    @classmethod
    def nbytes(cls, problem: Indexing) -> int:
        """Bytes of heads and links."""
        return _WORD * (problem.size + problem.count)

    @property
    def row(self) -> int:
        return self.inner * self.dtype.itemsize

    @property
    def heads(self) -> ir.LlvmValue:
        """For each row, the number of its first update; -1 where it has none."""
        return self.workspace

    @property
    def links(self) -> ir.LlvmValue:
        """For each update, the number of the next one of its row; -1 for the last."""
        return address(self.builder, self.workspace, _WORD * self.problem.size)

    def write(self, tid: ir.LlvmValue, nthreads: ir.LlvmValue) -> None:
        """The rows that are this thread's."""
        b, problem = self.builder, self.problem
        low, high = share(b, problem.size, tid, nthreads)
        self._chain(low, high)
        is_large = (
            wants_nontemporal(self.isa, problem.size * self.row)
            and self.row % CACHE_LINE == 0
            and not self.dtype.is_narrow
        )

        def write(is_nontemporal: bool) -> None:
            with counting(b, low, high) as n:
                evolve(self, is_nontemporal=is_nontemporal)._sum(n, high)

        either_way(b, self.isa, [self.result] if is_large else [], write)

    def _chain(self, low: ir.LlvmValue, high: ir.LlvmValue) -> None:
        """Chain the updates of rows `low` to `high`."""
        b, problem = self.builder, self.problem
        nbytes = b.mul(b.sub(high, low), index(_WORD))
        fill_bytes(b, offset(b, self.heads, (low, _WORD)), 0xFF, nbytes)
        with counting(b, 0, problem.count) as done:
            i = b.sub(sized(b, problem.count - 1), done)

            def use(place: ir.LlvmValue) -> None:
                is_mine = b.and_(b.icmp_signed(">=", place, low), b.icmp_signed("<", place, high))
                with b.if_then(is_mine):
                    head = offset(b, self.heads, (place, _WORD))
                    b.store(b.load(head, typ=I32, align=_WORD), offset(b, self.links, (i, _WORD)), align=_WORD)
                    b.store(b.trunc(i, I32), head, align=_WORD)

            with_index(b, problem, self.indices, i, None, use)

    def _sum(self, n: ir.LlvmValue, high: ir.LlvmValue) -> None:
        """Row `n` of those below `high`."""
        b, lanes = self.builder, self.isa.lanes(self.dtype.accumulator)
        ahead = b.add(n, index(self.isa.machine.indexing.prefetch_rows))
        soon = self._number(self.heads, b.select(b.icmp_signed("<", ahead, high), ahead, n))
        for first in range(0, min(self.row, INTERLEAVED * self.isa.vector_bytes), CACHE_LINE):
            prefetch(b, offset(b, self.updates, (soon, self.row), first))
        to, bundle = offset(b, self.result, (n, self.row)), INTERLEAVED * lanes
        full_columns = self.inner // bundle * bundle
        with counting(b, 0, full_columns, bundle) as column:
            self._columns(n, to, column, tuple(pieces(0, bundle, lanes)))
        if full_columns < self.inner:
            self._columns(n, to, index(full_columns), tuple(pieces(0, self.inner - full_columns, lanes)))

    def _columns(
        self, n: ir.LlvmValue, to: ir.LlvmValue, column: ir.LlvmValue, vectors: Sequence[tuple[int, int]]
    ) -> None:
        """The columns of row `n` in some vectors, (first element, lanes) each, from element `column` on."""
        b, size = self.builder, self.dtype.itemsize
        totals = [Variable.new(b, held_type(self.dtype, lanes)) for _, lanes in vectors]
        for total in totals:
            total.set(b, constant(total.type, 0))
        with self._chained(n) as i:
            update = offset(b, self.updates, (i, self.row), (column, size))
            for total, (first, lanes) in zip(totals, vectors, strict=True):
                new = load_elements(b, self.isa, self.dtype, address(b, update, first * size), lanes)
                total.set(b, (b.fadd if self.dtype.is_float else b.add)(total.value(b), new))
        for total, (first, _) in zip(totals, vectors, strict=True):
            value, place = total.value(b), offset(b, to, (column, size), first * size)
            store_elements(b, self.isa, self.dtype, value, place, is_nontemporal=self.is_nontemporal)

    @contextmanager
    def _chained(self, n: ir.LlvmValue) -> Iterator[ir.LlvmValue]:
        """Run the code built inside for the number of every update of row `n`, in order."""
        b = self.builder
        again, body, done = (b.append_basic_block(name) for name in ("chain", "update", "chained"))
        number = Variable.new(b, I64)
        number.set(b, self._number(self.heads, n))
        b.branch(again)
        b.position_at_end(again)
        i = number.value(b)
        b.cbranch(b.icmp_signed(">=", i, index(0)), body, done)
        b.position_at_end(body)
        yield i
        number.set(b, self._number(self.links, i))
        b.branch(again)
        b.position_at_end(done)

    def _number(self, words: ir.LlvmValue, position: ir.LlvmValue) -> ir.LlvmValue:
        b = self.builder
        return b.sext(b.load(offset(b, words, (position, _WORD)), typ=I32, align=_WORD), I64)

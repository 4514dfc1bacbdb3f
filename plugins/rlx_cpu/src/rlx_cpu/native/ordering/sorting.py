"""Sorting as native code: short rows by counting what comes before each element, long ones digit by digit.

Both are stable, so there is one right answer: neither threads nor the way that is taken change it. Results are read from the row:
a key does not say which zero or which NaN it was. Lines along other axes are transposed in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from rlx_core.codegen.movement.boxes import Axis
from rlx_core.codegen.ordering import Sorting
from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import ALIGNMENT, MOST_PARTS, Emitted, aligned
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, KERNEL, memory_type
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known, sized
from rlx_cpu.native.movement.mover import Mover
from rlx_cpu.native.ordering.radix import WORD, Radix
from rlx_cpu.native.ordering.ranks import Ranks, is_short
from rlx_cpu.native.ordering.selection import Candidates, SelectionRow, Slices

LINE_NBYTES = 64
"""Bytes of neighbouring lines that are transposed together: a cache line."""


@frozen
class SortProblem:
    """A sorting, and how its rows are sorted.

    Attributes:
        is_cut: Whether threads share each of the rows.
        has_wide_digits: Whether digits are wide, where it is not known how long rows are.
    """

    row: SelectionRow
    sorting: Sorting
    is_cut: bool
    has_wide_digits: bool | None = None

    @classmethod
    def of(cls, op: Any, x: TensorType, first: TensorType, isa: Isa) -> SortProblem:
        """Return the problem of known sizes."""
        s, sizes = Sorting.of(op, x, first), isa.machine.ordering
        is_cut = s.n >= sizes.shared_row and s.outer < sizes.few_rows and s.inner == 1 and s.kept == s.n
        return cls(SelectionRow(isa, s.keys, s.n), s, is_cut)

    @property
    def unit_lines(self) -> int:
        """Lines of a unit."""
        inner = self.sorting.inner
        return 1 if inner == 1 else min(inner, LINE_NBYTES // self.row.size)

    @property
    def blocks(self) -> int:
        """Units of neighbouring lines."""
        return -(-self.sorting.inner // self.unit_lines)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of an element of the operand, and of each result."""
        values = (self.row.size,) if self.sorting.has_values else ()
        return (self.row.size, *values, self.sorting.index.itemsize)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Elements of a line of the operand, and of each result."""
        return (self.row.n, *(self.sorting.kept for _ in self.sizes[1:]))

    @cached_property
    def way(self) -> Candidates | Ranks | Radix:
        """The algorithm for a row: by candidates, by counting, or radix sort, which requires the least information."""
        row = self.row
        candidates = Candidates(row, self.sorting.kept)
        if is_known(row.n) and candidates.is_worthwhile:
            return candidates
        if is_known(row.n) and is_short(row.isa, row.n):
            return Ranks(row.isa, row.keys, row.n)
        return Radix(row.isa, row.keys, row.n, self.has_wide_digits)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to sort, or nothing is kept."""
        return self.sorting.lines * self.sorting.kept == 0

    @property
    def row_workspace(self) -> int:
        """Bytes that a thread needs for a row."""
        way = self.way
        return way.sorter.workspace if isinstance(way, Candidates) else way.workspace

    @property
    def workspace(self) -> int:
        """Bytes that a thread needs."""
        alone = self.row_workspace
        return alone if self.sorting.inner == 1 else Staging(self, aligned(alone)).offsets[-1]

    @property
    def uses_threads(self) -> bool:
        """Whether threads share it, for known sizes."""
        s, row = self.sorting, self.row
        is_large = s.lines * row.n * row.size >= row.isa.machine.serial_nbytes
        return is_large and (self.is_cut or s.outer * self.blocks > 1)

    @property
    def parts(self) -> int:
        """Number of parts, for known sizes; 0 for one per thread."""
        return 0 if self.is_cut else min(MOST_PARTS, self.sorting.outer * self.blocks)


@frozen(eq=False)
class SortedRow:
    """One dense row of the operand, and where its results go, dense too.

    Attributes:
        values: Destination of the elements, if they are a result.
    """

    problem: SortProblem
    row: ir.LlvmValue
    values: ir.LlvmValue | None
    positions: ir.LlvmValue

    @classmethod
    def at(cls, problem: SortProblem, pointers: tuple[ir.LlvmValue, ...]) -> SortedRow:
        return cls(problem, pointers[0], pointers[1] if problem.sorting.has_values else None, pointers[-1])

    def write(self, b: ir.IRBuilder, place: ir.LlvmValue, position: ir.LlvmValue) -> None:
        """The element at `position` comes at `place`."""
        size, itemsize = self.problem.row.size, self.problem.sorting.index.itemsize
        if self.values is not None:
            bits = b.load(offset(b, self.row, (position, size)), typ=ir.IntType(8 * size), align=size)
            b.store(bits, offset(b, self.values, (place, size)), align=size)
        number = position if itemsize == 8 else b.trunc(position, memory_type(self.problem.sorting.index))
        b.store(number, offset(b, self.positions, (place, itemsize)), align=itemsize)

    def write_words(self, b: ir.IRBuilder, words: ir.LlvmValue, count: ir.LlvmValue, start: ir.LlvmValue) -> None:
        """The first `count` of sorted words come at `start` and after it."""
        with counting(b, index(0), count) as i:
            word = b.load(offset(b, words, (i, WORD)), typ=I64, align=WORD)
            self.write(b, b.add(start, i), b.and_(word, index(0xFFFFFFFF)))


OneLine = Callable[[ir.IRBuilder, SortedRow, ir.LlvmValue], None]
"""Code that sorts a line, given scratch memory."""


def one_line_of(module: ir.Module, problem: SortProblem, name: str) -> OneLine:
    """Code for a line."""
    way, count = problem.way, problem.sorting.kept
    if isinstance(way, Candidates):
        find = way.function(module, f"{name}.first")

        def by_candidates(b: ir.IRBuilder, line: SortedRow, scratch: ir.LlvmValue) -> None:
            line.write_words(b, b.call(find, [line.row, scratch]), index(count), index(0))

        return by_candidates
    if isinstance(way, Ranks):
        return partial(by_rank, way)
    sort = way.function(module, f"{name}.radix")

    def by_digit(b: ir.IRBuilder, line: SortedRow, scratch: ir.LlvmValue) -> None:
        words = b.call(sort, [line.row, sized(b, problem.row.n), scratch])
        line.write_words(b, words, sized(b, count), index(0))

    return by_digit


def by_rank(ranks: Ranks, b: ir.IRBuilder, line: SortedRow, scratch: ir.LlvmValue) -> None:
    ranks.count(b, line.row, scratch)
    with counting(b, 0, ranks.n) as i:
        place = ranks.place(b, scratch, i)
        if line.problem.sorting.kept == ranks.n:
            line.write(b, place, i)
        else:
            with b.if_then(b.icmp_unsigned("<", place, index(line.problem.sorting.kept))):
                line.write(b, place, i)


# ----------------------------------------------------------------------------------------- neighbours


@frozen
class Staging:
    """Scratch memory for neighbouring lines and their results, as rows.

    Attributes:
        start: Bytes before it.
    """

    problem: SortProblem
    start: int

    def pitch(self, number: int) -> int:
        """Bytes from one row of the operand, or of a result, to the next; no power of 2, which caches would keep in one place."""
        return aligned(self.problem.lengths[number] * self.problem.sizes[number]) + ALIGNMENT

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start offsets of the rows of the operand and of each result, and their end."""
        ends = [self.start]
        for number in range(len(self.problem.sizes)):
            ends.append(ends[-1] + self.problem.unit_lines * self.pitch(number))
        return tuple(ends)

    def sort(
        self, b: ir.IRBuilder, pointers: tuple[ir.LlvmValue, ...], lines: int, scratch: ir.LlvmValue, one_line: OneLine
    ) -> None:
        """Sort `lines` neighbours, the first of which begin at `pointers`."""
        staged = tuple(offset(b, scratch, start) for start in self.offsets[:-1])
        self._move(b, 0, staged[0], pointers[0], lines, is_in=True)
        with counting(b, 0, lines) as i:
            rows = tuple(offset(b, first, (i, self.pitch(k))) for k, first in enumerate(staged))
            one_line(b, SortedRow.at(self.problem, rows), scratch)
        for number in range(1, len(staged)):
            self._move(b, number, pointers[number], staged[number], lines, is_in=False)

    def _move(
        self, b: ir.IRBuilder, number: int, to: ir.LlvmValue, source: ir.LlvmValue, lines: int, *, is_in: bool
    ) -> None:
        """Lines to rows, or back."""
        p, size = self.problem, self.problem.sizes[number]
        across, along = Axis(lines, self.pitch(number), size), Axis(p.lengths[number], size, p.sorting.inner * size)
        mover = Mover(b, p.row.isa, size)
        if is_in:
            mover.move(to, source, (across, along))
        else:
            mover.move(to, source, tuple(Axis(a.count, a.source, a.to) for a in (along, across)))


def emit_sort(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Units of neighbouring lines shared out, or the slices of a few long rows."""
    (x,) = layout.required(0)
    problem = SortProblem.of(node.op, x.type, layout.results[0].type, isa)
    write_sort(module, problem, name)
    if problem.is_empty:
        return Emitted(name, uses_threads=False)
    return Emitted(name, workspace=problem.workspace, uses_threads=problem.uses_threads, parts=problem.parts)


def write_sort(module: ir.Module, problem: SortProblem, name: str) -> None:
    """The function of a sorting."""
    b = ir.new_function(module, KERNEL, name)
    if problem.is_empty:
        b.ret_void()
        return
    buffers, part, parts, thread = b.function.args
    one_line, staging = one_line_of(module, problem, name), Staging(problem, aligned(problem.row_workspace))
    scratch = offset(b, pointer_at(b, buffers, len(problem.sizes)), (thread, aligned(problem.workspace)))

    def pointers(outer: ir.LlvmValue, block: ir.LlvmValue) -> tuple[ir.LlvmValue, ...]:
        inner, lines = problem.sorting.inner, problem.unit_lines
        shapes = zip(problem.sizes, problem.lengths, strict=True)
        return tuple(
            offset(b, pointer_at(b, buffers, k), (outer, n * inner * size), (block, lines * size))
            for k, (size, n) in enumerate(shapes)
        )

    def lines() -> None:
        with counting(b, *share(b, problem.sorting.outer * problem.blocks, part, parts)) as unit:
            outer, block = b.udiv(unit, index(problem.blocks)), b.urem(unit, index(problem.blocks))
            first = pointers(outer, block)
            if problem.sorting.inner == 1:
                one_line(b, SortedRow.at(problem, first), scratch)
                return
            left = problem.sorting.inner % problem.unit_lines
            with b.if_else(b.icmp_unsigned("==", block, index(problem.blocks - 1))) as (last, other):
                with last:
                    staging.sort(b, first, left or problem.unit_lines, scratch, one_line)
                with other:
                    staging.sort(b, first, problem.unit_lines, scratch, one_line)

    if problem.is_cut:
        row = problem.row
        listed = Radix(row.isa, row.keys, row.n).function(module, f"{name}.listed", is_listed=True)
        with b.if_else(b.icmp_signed(">", parts, sized(b, problem.sorting.outer))) as (slices, unsliced):
            with slices, counting(b, 0, problem.sorting.outer) as outer:
                line = SortedRow.at(problem, pointers(outer, index(0)))
                count, before = Slices(row).list(b, line.row, scratch, part, parts)
                line.write_words(b, b.call(listed, [line.row, count, scratch]), count, before)
            with unsliced:
                lines()
    else:
        lines()
    b.ret_void()

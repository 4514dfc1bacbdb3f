"""Operands rearranged into panels, which the inner loop reads front to back: in the kernel here, ahead of time in `packs.py`.

A panel of B holds words `[k, columns]`, columns rounded up to whole vectors and filled with zeros; a tile of A holds
`[k, rows]`, or `[rows, k]` where rows are only made into words. A partial last word is filled up with 0. A panel of words of
bytes begins with corrections of the sums of its columns if there are any (`llvm.words`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_core.codegen.cuts import Cut
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, Variable, least
from rlx_cpu.native.llvm.cuts import by_size, size_of, start_of
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import sized
from rlx_cpu.native.llvm.words import Words


@frozen(eq=False)
class PanelPacking:
    """Code that copies columns of a matrix B into panels.

    Attributes:
        depth: Elements along k.
        strides: In bytes, along k and along n.
        columns: Columns of B in all; those beyond become zeros.
        end: Steps of k from this one on may be left out.
    """

    b: ir.IRBuilder
    words: Words
    depth: int
    strides: tuple[int, int]
    columns: int
    end: ir.LlvmValue | None = None

    def pack(self, source: ir.LlvmValue, packed: ir.LlvmValue, panels: Cut, panel: ir.LlvmValue) -> None:
        """Copy `[depth, vectors · lanes]` of B into a panel.

        Args:
            source: B's first element.
            packed: The panel's first word.
            panels: The columns of B, in vectors; `panel` is the number of a piece of it.
        """
        b, words = self.b, self.words
        if not words.is_corrected:
            self._pack_words(source, packed, panels, panel)
            return
        row_nbytes = times(b, size_of(b, panels, panel), words.nbytes)
        first = offset(b, packed, row_nbytes)
        self._pack_words(source, first, panels, panel)
        self._correct(packed, first, row_nbytes)

    def _pack_words(self, source: ir.LlvmValue, packed: ir.LlvmValue, panels: Cut, panel: ir.LlvmValue) -> None:
        """The words of a panel along k."""
        b, words, simd, (by_k, by_n) = self.b, self.words, self.words.simd, self.strides
        column = times(b, start_of(b, panels, panel), simd.lanes)
        left = offset(b, source, (column, by_n))
        if by_n == words.stored.itemsize:
            for vectors in by_size(b, panels, panel):
                self._copy_lines(left, packed, [b.add(column, index(j * simd.lanes)) for j in range(vectors)])
            return
        # A loop, and one for both sizes: a square that is transposed is hundreds of instructions.
        count = size_of(b, panels, panel)
        width = times(b, count, words.nbytes)
        with counting(b, 0, count) as j:
            first, start = offset(b, left, (j, simd.lanes * by_n)), b.add(column, times(b, j, simd.lanes))
            place = offset(b, packed, (j, simd.nbytes))
            if by_k == words.stored.itemsize:
                self._pack_columns(first, place, width, start)
            else:
                self._gather_steps(first, place, (0, self.depth), width, start)

    def _correct(self, head: ir.LlvmValue, packed: ir.LlvmValue, row_nbytes: ir.LlvmValue) -> None:
        """The corrections of the sums of a panel's columns, from its words."""
        b, words, simd = self.b, self.words, self.words.simd
        with counting(b, 0, row_nbytes, simd.nbytes) as start:
            total = Variable.of(b, simd.zero)
            with counting(b, 0, words.count(self.depth)) as k:
                value = simd.load(b, offset(b, packed, start, b.mul(k, row_nbytes)), align=simd.nbytes)
                total.set(b, words.correction(b, value, total.value(b)))
            simd.store(b, total.value(b), offset(b, head, start), align=simd.nbytes)

    def _copy_lines(self, source: ir.LlvmValue, packed: ir.LlvmValue, starts: Sequence[ir.LlvmValue]) -> None:
        """A panel of a B whose rows are contiguous, from the vectors that begin with the columns `starts`."""
        b, words, simd, by_k = self.b, self.words, self.words.simd, self.strides[0]
        is_full = self.columns % simd.lanes == 0
        inside = [None if is_full else simd.below(b, start, sized(b, self.columns)) for start in starts]
        for low, high, terms in _word_ranges(words, 0, self.depth):
            end = self.end if words.per_word == 1 else None
            with counting(b, low, high if end is None else least(b, sized(b, high), end)) as k:
                left = offset(b, source, (k, by_k * words.per_word))
                place = offset(b, packed, (k, len(starts) * words.nbytes))
                line = [
                    words.across(b, offset(b, left, j * words.stored.nbytes), by_k, mask, terms=terms)
                    for j, mask in enumerate(inside)
                ]
                for j, value in enumerate(line):
                    simd.store(b, value, offset(b, place, j * simd.nbytes), align=simd.nbytes)

    def _pack_columns(
        self, source: ir.LlvmValue, packed: ir.LlvmValue, width: ir.LlvmValue, start: ir.LlvmValue
    ) -> None:
        """One vector of columns of a B whose columns are contiguous: square blocks transposed in registers.

        Args:
            width: Bytes from a row of the panel to the next.
            start: The number of the first column.
        """
        b, words, simd, (by_k, by_n) = self.b, self.words, self.words.simd, self.strides
        lanes, bound = simd.lanes, sized(b, self.columns)
        full_words = self.depth // words.per_word
        even = full_words - full_words % lanes
        is_full = self.columns % lanes == 0
        last = b.sub(b.sub(bound, index(1)), start)
        with counting(b, 0, even, lanes) as k:
            left, line = offset(b, source, (k, by_k * words.per_word)), offset(b, packed, b.mul(k, width))
            rows = []
            for lane in range(lanes):
                # A column beyond the last is read as the last one, and zeroed below.
                nearest: ir.LlvmValue = index(lane)
                if not is_full:
                    nearest = least(b, nearest, last)
                rows.append(words.along(b, offset(b, left, (nearest, by_n))))
            shown = None if is_full else b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound))
            for value in simd.transposed(b, rows):
                simd.store(b, value if shown is None else b.select(shown, value, simd.zero), line, align=simd.nbytes)
                line = offset(b, line, width)
        self._gather_steps(source, packed, (even * words.per_word, self.depth), width, start)

    def _gather_steps(
        self,
        source: ir.LlvmValue,
        packed: ir.LlvmValue,
        steps: tuple[int, int],
        width: ir.LlvmValue,
        start: ir.LlvmValue,
    ) -> None:
        """Elements of k from one to another, gathered a vector per word; the first is the first of a word."""
        b, words = self.b, self.words
        for first, end, terms in _word_ranges(words, *steps):
            with counting(b, first, end) as k:
                value = self._gather(offset(b, source, (k, self.strides[0] * words.per_word)), start, terms=terms)
                words.simd.store(b, value, offset(b, packed, b.mul(k, width)), align=words.nbytes)

    def _gather(self, source: ir.LlvmValue, start: ir.LlvmValue, *, terms: int | None) -> ir.LlvmValue:
        """Load one vector of words of strided columns; zeros beyond the last column, whose memory is not accessed."""
        b, words, simd, (by_k, by_n) = self.b, self.words, self.words.simd, self.strides
        bound = sized(b, self.columns)
        last = b.sub(b.sub(bound, index(1)), start)
        value: ir.LlvmValue = ir.LlvmConstant(simd.vector, ir.Undefined)
        for lane in range(simd.lanes):
            nearest = least(b, index(lane), last)
            scalar = words.scalar(b, offset(b, source, (nearest, by_n)), by_k, terms=terms)
            value = b.insert_element(value, scalar, ir.LlvmConstant(I32, lane))
        shown = b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound))
        return b.select(shown, value, simd.zero)


def pack_rows(
    b: ir.IRBuilder,
    words: Words,
    source: ir.LlvmValue,
    packed: ir.LlvmValue,
    *,
    steps: int,
    rows: int,
    strides: tuple[int, int],
    terms: int | None = None,
) -> None:
    """Copy `[rows, steps]` of A into a tile, `rows` words a step of k.

    Args:
        steps: In words.
        strides: In bytes, along m and along k.
        terms: Elements of a word; all by default.
    """
    by_m, by_k = strides
    width = rows * words.itemsize
    for k in range(steps):
        left, place = offset(b, source, k * by_k * words.per_word), offset(b, packed, k * width)
        if by_m == words.stored.itemsize:
            b.store(words.across(b, left, by_k, count=rows, terms=terms), place, align=words.itemsize)
        else:
            values = [words.scalar(b, offset(b, left, i * by_m), by_k, terms=terms) for i in range(rows)]
            for i, value in enumerate(values):
                b.store(value, offset(b, place, i * words.itemsize), align=words.itemsize)


def copy_row(
    b: ir.IRBuilder,
    words: Words,
    source: ir.LlvmValue,
    place: ir.LlvmValue,
    low: ir.LlvmValue,
    high: ir.LlvmValue,
    *,
    by_k: int,
    terms: int = 1,
) -> None:
    """A row's elements from `low` to `high` as words in a row, starting at `place`; `low` is the first of a word.

    Args:
        source: The row's element 0.
        by_k: Bytes from an element to the next.
        terms: Elements of a partial last word.
    """
    simd, per_word = words.simd, words.per_word
    full_words = b.sdiv(b.sub(high, low), index(per_word))
    left = offset(b, source, (low, by_k))
    done: ir.LlvmValue = index(0)
    if by_k == words.stored.itemsize:
        done = b.and_(full_words, index(-simd.lanes))
        with counting(b, 0, done, simd.lanes) as k:
            value = words.along(b, offset(b, left, (k, by_k * per_word)))
            simd.store(b, value, offset(b, place, (k, words.itemsize)))
    with counting(b, done, full_words) as k:
        value = words.scalar(b, offset(b, left, (k, by_k * per_word)), by_k)
        b.store(value, offset(b, place, (k, words.itemsize)), align=words.itemsize)
    if per_word > 1:
        with b.if_then(b.icmp_signed("<", b.mul(full_words, index(per_word)), b.sub(high, low))):
            value = words.scalar(b, offset(b, left, (full_words, by_k * per_word)), by_k, terms=terms)
            b.store(value, offset(b, place, (full_words, words.itemsize)), align=words.itemsize)


def _word_ranges(words: Words, low: int, high: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield the ranges of words of the elements from one to another: of whole words, then of a partial one with its elements."""
    full_end = high // words.per_word
    ranges = (
        (low // words.per_word, full_end, None),
        (full_end, words.count(high), words.terms_of_last(high)),
    )
    return (each for each in ranges if each[0] != each[1])

"""Top-k select, and the slices of a row that threads share: lists of positions, kept as the words that `radix.py` moves.

Top-k is computed with a list of candidates: elements that precede the last of the best k so far. When the list is full it is
sorted, and all but the first k are dropped. A row that several threads sort is partitioned by keys, not by positions: each part
reads the full row and lists the elements between its two bounds, so that no part waits for another.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, Variable, splat
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, suffix, width
from rlx_cpu.native.llvm.simd import counting, index, offset
from rlx_cpu.native.ordering.order_keys import KeyRow, key_type, load_keys
from rlx_cpu.native.ordering.radix import WORD, Radix
from rlx_cpu.native.ordering.ranks import Ranks

SAMPLE = 128
"""Elements from which the bounds of slices are chosen: slices differ by a tenth, rarely by more."""


@frozen
class PositionList:
    """A list of positions under construction.

    Attributes:
        words: Its address.
        count: Number of positions.
    """

    words: ir.LlvmValue
    count: Variable

    @classmethod
    def empty(cls, b: ir.IRBuilder, words: ir.LlvmValue) -> PositionList:
        return cls(words, Variable.of(b, index(0)))

    def add(self, b: ir.IRBuilder, first: ir.LlvmValue, selected: ir.LlvmValue) -> None:
        """Add the selected ones of the positions `first`, `first + 1`, …; the list must have capacity for all of them."""
        count = self.count.value(b)
        for lane in range(width(selected)):
            one = selected if width(selected) == 1 else b.extract_element(selected, ir.LlvmConstant(I32, lane))
            b.store(b.add(first, index(lane)), offset(b, self.words, (count, WORD)), align=WORD)
            count = b.add(count, b.zext(one, I64))
        self.count.set(b, count)


@frozen
class SelectionRow(KeyRow):
    """A row that is read once, a vector of keys at a time."""

    def scan(
        self, b: ir.IRBuilder, row: ir.LlvmValue, start: int, see: Callable[[ir.LlvmValue, ir.LlvmValue], None]
    ) -> None:
        """Code for the elements from `start` on: `see(their first position, their keys)`."""
        full_end = start + (self.n - start) // self.lanes * self.lanes
        for count, low, high in ((self.lanes, start, full_end), (1, full_end, self.n)):
            if low < high:
                with counting(b, low, high, count) as i:
                    see(i, load_keys(b, self.keys, offset(b, row, (i, self.size)), count))


@frozen
class Candidates:
    """The first `count` elements in order of a row of many more."""

    row: SelectionRow
    count: int

    @property
    def first(self) -> int:
        """Positions that are listed before any is dropped: three times the kept number, with a minimum."""
        return max(3 * self.count, 256)

    @property
    def capacity(self) -> int:
        """Capacity of the list in positions: a vector of them is added at once."""
        return self.first + self.row.lanes

    @property
    def is_worthwhile(self) -> bool:
        return 2 * self.capacity <= self.row.n

    @property
    def sorter(self) -> Radix:
        return Radix(self.row.isa, self.row.keys, self.capacity)

    def function(self, module: ir.Module, name: str) -> ir.Function:
        """A private function of (row, scratch): returns where in scratch the words of the first elements are."""
        function = ir.Function(module, ir.FunctionType(ir.PointerType(), [ir.PointerType()] * 2), name)
        function.linkage = "internal"
        sort = self.sorter.function(module, f"{name}.sort", is_listed=True)
        row, scratch = function.args
        b = ir.IRBuilder(function.append_basic_block("entry"))
        listing = PositionList.empty(b, scratch)
        last = Variable.new(b, key_type(self.row.keys))
        size, first = self.row.size, self.first

        def forget() -> None:
            """Keep the best; `last` is the key of the last of them."""
            words = b.call(sort, [row, listing.count.value(b), scratch])
            is_elsewhere = b.icmp_unsigned("!=", b.ptrtoint(words, I64), b.ptrtoint(scratch, I64))
            with b.if_then(is_elsewhere), counting(b, 0, self.count) as i:
                word = b.load(offset(b, words, (i, WORD)), typ=I64, align=WORD)
                b.store(word, offset(b, scratch, (i, WORD)), align=WORD)
            listing.count.set(b, index(self.count))
            word = b.load(offset(b, scratch, (self.count - 1) * WORD), typ=I64, align=WORD)
            place = b.and_(word, index(0xFFFFFFFF))
            last.set(b, load_keys(b, self.row.keys, offset(b, row, (place, size))))

        with counting(b, 0, first) as i:
            b.store(i, offset(b, scratch, (i, WORD)), align=WORD)
        listing.count.set(b, index(first))
        forget()

        def see(position: ir.LlvmValue, keys: ir.LlvmValue) -> None:
            # Of equals the earlier one is kept, and that is the one that is there already.
            bound = splat(b, last.value(b), width(keys))
            selected = b.icmp_unsigned("<", keys, bound)
            with b.if_then(b.any_lane(selected), likely=False):
                listing.add(b, position, selected)
                with b.if_then(b.icmp_unsigned(">", listing.count.value(b), index(first)), likely=False):
                    forget()

        self.row.scan(b, row, first, see)
        forget()
        b.ret(scratch)
        return function


@frozen
class Slices:
    """A long row cut by keys into as many slices as there are parts, about equal ones."""

    row: SelectionRow

    @property
    def ranks(self) -> Ranks:
        """The sample: every so many-th element."""
        return Ranks(self.row.isa, self.row.keys, SAMPLE, self.row.n // SAMPLE)

    def list(
        self, b: ir.IRBuilder, row: ir.LlvmValue, scratch: ir.LlvmValue, part: ir.LlvmValue, parts: ir.LlvmValue
    ) -> tuple[ir.LlvmValue, ir.LlvmValue]:
        """(how many elements are in a slice, how many come before it); its positions are listed in scratch memory."""
        keys = self.row.keys
        self.ranks.count(b, row, scratch)
        following = b.add(part, index(1))
        low, high = (self._bound(b, scratch, b.udiv(b.mul(p, index(SAMPLE)), parts)) for p in (part, following))
        is_first, is_last = b.icmp_unsigned("==", part, index(0)), b.icmp_unsigned("==", following, parts)
        low = b.select(is_first, constant(key_type(keys), 0), low)
        listing = PositionList.empty(b, scratch)
        before = Variable.of(b, index(0))

        def see(position: ir.LlvmValue, row_keys: ir.LlvmValue) -> None:
            lanes = width(row_keys)
            is_before = b.icmp_unsigned("<", row_keys, splat(b, low, lanes))
            is_below = b.or_(b.icmp_unsigned("<", row_keys, splat(b, high, lanes)), splat(b, is_last, lanes))
            before.set(b, b.add(before.value(b), _many(b, is_before)))
            selected = b.and_(is_below, b.not_(is_before))
            with b.if_then(b.any_lane(selected)):
                listing.add(b, position, selected)

        self.row.scan(b, row, 0, see)
        return listing.count.value(b), before.value(b)

    def _bound(self, b: ir.IRBuilder, scratch: ir.LlvmValue, rank: ir.LlvmValue) -> ir.LlvmValue:
        """The key of the sample that comes at `rank`; the first one if none does."""
        type, size = key_type(self.row.keys), self.row.size
        bound = Variable.of(b, constant(type, 0))
        with counting(b, 0, SAMPLE) as i, b.if_then(b.icmp_unsigned("==", self.ranks.place(b, scratch, i), rank)):
            bound.set(b, b.load(offset(b, scratch, (i, size)), typ=type, align=size))
        return bound.value(b)


def _many(b: ir.IRBuilder, condition: ir.LlvmValue) -> ir.LlvmValue:
    """In how many lanes a condition holds."""
    if width(condition) == 1:
        return b.zext(condition, I64)
    lanes = width(condition)
    mask = b.bitcast(condition, ir.IntType(lanes))
    count = b.call(declare(b.module, f"llvm.ctpop.{suffix(mask.type)}", mask.type, [mask.type]), [mask])
    return b.zext(count, I64) if lanes < 64 else count

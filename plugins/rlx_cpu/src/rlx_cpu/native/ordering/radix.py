"""Long rows in order: digit by digit from the lowest up, each pass stable, so that ties stay where they were.

What moves is a word: 32 bits of a key above the 32 bits of a position. A key of 64 bits goes in two rounds, its low half first;
the second looks its halves up again. A pass whose digit is the same in all words is skipped, so small integers in a wide dtype
cost little more than narrow ones.
"""

from __future__ import annotations

from itertools import accumulate

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, POINTER, Variable
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.simd import counting, index, offset, times
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.ordering.order_keys import KeyRow, load_keys

WORD = 8
"""Bytes of a word."""

COUNT = 4
"""Bytes of a counter."""


@frozen
class Digit:
    """Some bits of half a key.

    Attributes:
        shift: Its lowest bit.
        width: Number of bits.
        first: The number of its first counter.
    """

    shift: int
    width: int
    first: int

    @property
    def values(self) -> int:
        return 1 << self.width


@frozen
class Radix(KeyRow):
    """Sorting rows of at most `n` elements, fewer than 2^32; if `n` is unknown, all sorted rows have the same length.

    Attributes:
        given_wide: Whether digits are wide, if the caller knows n.
    """

    given_wide: bool | None = None

    @property
    def is_wide(self) -> bool:
        """Whether there are fewer digits, with more counters each."""
        return self.n >= self.isa.machine.ordering.wide_digits if self.given_wide is None else self.given_wide

    @property
    def digits(self) -> tuple[Digit, ...]:
        """The digits of a key, or of each half of a long one."""
        bits = min(self.keys.bits, 32)
        count = -(-bits // (11 if self.is_wide else 8))
        widths = [bits // count + (k < bits % count) for k in range(count)]
        shifts, firsts = ([0, *accumulate(sizes)] for sizes in (widths, [1 << w for w in widths]))
        return tuple(Digit(*each) for each in zip(shifts, widths, firsts, strict=False))

    @property
    def counters(self) -> int:
        return sum(d.values for d in self.digits)

    @property
    def workspace(self) -> int:
        """Bytes: words, as many again to move them to, and counters."""
        return 2 * self.n * WORD + self.counters * COUNT

    def function(self, module: ir.Module, name: str, is_listed: bool = False) -> ir.Function:
        """A private function of (row, count, scratch): sorts, and returns where in scratch the words are.

        Args:
            is_listed: Whether the words at the beginning of scratch say which elements there are; otherwise they are the
                first `count` of the row.
        """
        b = ir.new_function(module, ir.FunctionType(POINTER, [POINTER, I64, POINTER]), name, is_internal=True)
        row, count, scratch = b.function.args
        Passes(b, self, row, count, scratch).run(is_listed)
        return b.function


class Passes:
    """The code of one function."""

    def __init__(
        self, b: ir.IRBuilder, plan: Radix, row: ir.LlvmValue, count: ir.LlvmValue, scratch: ir.LlvmValue
    ) -> None:
        self.b, self.plan, self.row, self.count = b, plan, row, count
        words, both = (plan.n * k * WORD if is_known(plan.n) else times(b, count, k * WORD) for k in (1, 2))
        self.counters = offset(b, scratch, both)
        self.here, self.there = Variable.new(b, POINTER), Variable.new(b, POINTER)
        self.here.set(b, scratch)
        self.there.set(b, offset(b, scratch, words))

    def run(self, is_listed: bool) -> None:
        b = self.b
        with b.if_then(b.icmp_signed(">", self.count, index(0))):
            for half in range(max(1, self.plan.keys.bits // 32)):
                self._clear()
                self._prepare(half, is_listed or half > 0)
                for digit in self.plan.digits:
                    self._move(digit)
        b.ret(self.here.value(b))

    def _clear(self) -> None:
        lanes = self.plan.isa.vector_bytes // COUNT
        zero = constant(ir.VectorType(I32, lanes), 0)
        with counting(self.b, 0, self.plan.counters, lanes) as i:
            self.b.store(zero, offset(self.b, self.counters, (i, COUNT)), align=COUNT)

    def _prepare(self, half: int, is_listed: bool) -> None:
        """Words with half of the keys, and how often each digit occurs in them."""
        b, keys = self.b, self.plan.keys
        words = self.here.value(b)
        with counting(b, 0, self.count) as i:
            word = offset(b, words, (i, WORD))
            place = b.and_(b.load(word, typ=I64, align=WORD), index(0xFFFFFFFF)) if is_listed else i
            key = load_keys(b, keys, offset(b, self.row, (place, keys.dtype.itemsize)))
            wide = b.zext(key, I64) if keys.bits < 64 else key
            if half:
                wide = b.lshr(wide, index(32))
            high = b.shl(wide, index(32))
            b.store(b.or_(high, place), word, align=WORD)
            for digit in self.plan.digits:
                self._increased(digit, high)

    def _counter(self, digit: Digit, word: ir.LlvmValue) -> ir.LlvmValue:
        b = self.b
        value = b.and_(b.lshr(word, index(32 + digit.shift)), index(digit.values - 1))
        return offset(b, self.counters, (value, COUNT), digit.first * COUNT)

    def _increased(self, digit: Digit, word: ir.LlvmValue) -> ir.LlvmValue:
        """The counter of a word's digit as it was, now one more."""
        place = self._counter(digit, word)
        before = self.b.load(place, typ=I32, align=COUNT)
        self.b.store(self.b.add(before, ir.LlvmConstant(I32, 1)), place, align=COUNT)
        return before

    def _move(self, digit: Digit) -> None:
        b = self.b
        source, target = self.here.value(b), self.there.value(b)
        common = b.load(self._counter(digit, b.load(source, typ=I64, align=WORD)), typ=I32, align=COUNT)
        with b.if_then(b.icmp_unsigned("!=", b.zext(common, I64), self.count)):
            self._starts(digit)
            with counting(b, 0, self.count) as i:
                word = b.load(offset(b, source, (i, WORD)), typ=I64, align=WORD)
                place = b.zext(self._increased(digit, word), I64)
                b.store(word, offset(b, target, (place, WORD)), align=WORD)
            self.here.set(b, target)
            self.there.set(b, source)

    def _starts(self, digit: Digit) -> None:
        """Counts become the places where the words of each digit begin."""
        b = self.b
        total = Variable.of(b, ir.LlvmConstant(I32, 0))
        with counting(b, 0, digit.values) as i:
            place = offset(b, self.counters, (i, COUNT), digit.first * COUNT)
            many, before = b.load(place, typ=I32, align=COUNT), total.value(b)
            b.store(before, place, align=COUNT)
            total.set(b, b.add(before, many))

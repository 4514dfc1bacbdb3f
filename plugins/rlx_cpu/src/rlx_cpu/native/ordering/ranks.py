"""Short rows in order: an element's place is the number of elements before it, counted a vector of elements at a time.

Every element is compared with every other: for some dozens of them that is less work than anything that branches or counts
digits.
"""

from __future__ import annotations

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import Variable, least, splat
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset
from rlx_cpu.native.ordering.order_keys import KeyRow, key_type, load_keys


def is_short(isa: Isa, n: int) -> bool:
    """Return whether a row is ordered in less time this way than digit by digit; measured on sets of 16 to 64 bytes."""
    return n <= 48 + 3 * isa.vector_bytes // 2


@frozen
class Ranks(KeyRow):
    """Sorting by counting ranks; `n` is at most the maximum of an unsigned integer of the keys' width.

    Attributes:
        step: Stride in elements.
    """

    step: int = 1

    @property
    def vectors(self) -> int:
        return -(-self.n // self.lanes)

    @property
    def keys_nbytes(self) -> int:
        """Bytes of all keys, or of all places."""
        return self.vectors * self.lanes * self.size

    @property
    def workspace(self) -> int:
        return 2 * self.keys_nbytes

    def place(self, b: ir.IRBuilder, scratch: ir.LlvmValue, i: ir.LlvmValue) -> ir.LlvmValue:
        """Return the position of element `i` in the sorted row, after `count`."""
        rank = b.load(offset(b, scratch, (i, self.size), self.keys_nbytes), typ=key_type(self.keys), align=self.size)
        return b.zext(rank, index(0).type) if self.keys.bits < 64 else rank

    def count(self, b: ir.IRBuilder, row: ir.LlvmValue, scratch: ir.LlvmValue) -> None:
        """Write the keys of a row to scratch memory, then their places."""
        self._write_keys(b, row, scratch)
        type = key_type(self.keys, self.lanes)
        total = Variable.new(b, type)
        numbers = ir.LlvmConstant(type, [constant(type.element, k) for k in range(self.lanes)])
        with counting(b, 0, self.vectors * self.lanes, self.lanes) as start:
            keys = b.load(offset(b, scratch, (start, self.size)), typ=type, align=self.size)
            total.set(b, constant(type, 0))
            last = least(b, b.add(start, index(self.lanes)), index(self.n))

            def add(is_before: ir.LlvmValue) -> None:
                total.set(b, b.sub(total.value(b), b.sext(is_before, type)))

            def each(low: ir.LlvmValue | int, high: ir.LlvmValue | int, relation: str) -> None:
                with counting(b, low, high) as j:
                    add(b.icmp_unsigned(relation, self._key(b, scratch, j), keys))

            each(0, start, "<=")
            with counting(b, start, last) as j:
                # Of equals the earlier one comes first.
                other, position = self._key(b, scratch, j), b.sub(j, start)
                lane = splat(b, b.trunc(position, type.element) if self.keys.bits < 64 else position, self.lanes)
                is_later = b.icmp_unsigned(">", numbers, lane)
                tied = b.and_(b.icmp_unsigned("==", other, keys), is_later)
                add(b.or_(b.icmp_unsigned("<", other, keys), tied))
            each(last, self.n, "<")
            places = total.value(b)
            b.store(places, offset(b, scratch, (start, self.size), self.keys_nbytes), align=self.size)

    def _key(self, b: ir.IRBuilder, scratch: ir.LlvmValue, j: ir.LlvmValue) -> ir.LlvmValue:
        """A key in every lane."""
        one = b.load(offset(b, scratch, (j, self.size)), typ=key_type(self.keys), align=self.size)
        return splat(b, one, self.lanes)

    def _write_keys(self, b: ir.IRBuilder, row: ir.LlvmValue, scratch: ir.LlvmValue) -> None:
        lanes = self.lanes if self.step == 1 else 1
        full_elements = self.n // lanes * lanes
        for count, low, high in ((lanes, 0, full_elements), (1, full_elements, self.n)):
            with counting(b, low, high, count) as i:
                key = load_keys(b, self.keys, offset(b, row, (i, self.step * self.size)), count)
                b.store(key, offset(b, scratch, (i, self.size)), align=self.size)

"""Places in sorted rows as native code: binary searches without branches, several values interleaved.

Keys are compared, so NaN is larger than every number, and zeros are equal, as in sorting.
"""

from __future__ import annotations

from rlx_core.codegen.ordering import Search
from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.ops.sorting import SearchSorted
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import MOST_PARTS, Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I1, I32, I64, KERNEL, POINTER, Variable, memory_type, splat
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, suffix, width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share, times
from rlx_cpu.native.ordering.order_keys import key_type, load_keys
from rlx_cpu.native.table import native, op_of

INTERLEAVED = 16
"""Values whose searches are interleaved: each waits for its own loads only."""


@frozen(eq=False)
class Bisection:
    """Code that looks for values in one row of a search."""

    builder: ir.IRBuilder
    search: Search

    def find(self, row: ir.LlvmValue, values: ir.LlvmValue, to: ir.LlvmValue, lanes: int) -> None:
        """The places of neighbouring values, one per lane."""
        b = self.builder
        keys = load_keys(b, self.search.keys, values, lanes)
        type = I64 if lanes == 1 else ir.VectorType(I64, lanes)
        place = Variable.of(b, constant(type, 0))
        if self.search.n:
            left = Variable.of(b, index(self.search.n))
            # A search ends when one element is left; the number of halvings does not depend on the comparisons.
            with counting(b, 0, (self.search.n - 1).bit_length()):
                length = left.value(b)
                half = b.lshr(length, index(1))
                self._advance(row, keys, place, half)
                left.set(b, b.sub(length, half))
            self._advance(row, keys, place, index(1))
        result, itemsize = place.value(b), self.search.index.itemsize
        number = result if itemsize == 8 else b.trunc(result, memory_type(self.search.index, lanes))
        b.store(number, to, align=itemsize)

    def _advance(self, row: ir.LlvmValue, keys: ir.LlvmValue, place: Variable, step: ir.LlvmValue) -> None:
        """Move every place by `step` if the element that is the last to be passed comes before the value."""
        b, lanes = self.builder, width(keys)
        before = place.value(b)
        after = b.add(before, splat(b, step, lanes))
        element = self.search.keys.of(b, self._elements(row, b.sub(after, constant(place.type, 1))))
        is_passed = b.icmp_unsigned("<=" if self.search.is_right else "<", element, keys)
        place.set(b, b.select(is_passed, after, before))

    def _elements(self, row: ir.LlvmValue, places: ir.LlvmValue) -> ir.LlvmValue:
        """The bits of the elements at `places`."""
        b, lanes, size = self.builder, width(places), self.search.keys.dtype.itemsize
        if lanes == 1:
            return b.load(offset(b, row, (places, size)), typ=key_type(self.search.keys), align=size)
        start = splat(b, b.ptrtoint(row, I64), lanes)
        addresses = b.add(start, b.mul(places, constant(places.type, size)))
        pointers = b.inttoptr(addresses, ir.VectorType(POINTER, lanes))
        type, mask = key_type(self.search.keys, lanes), ir.VectorType(I1, lanes)
        name = f"llvm.masked.gather.{suffix(type)}.v{lanes}p0"
        gather = declare(b.module, name, type, [pointers.type, I32, mask, type])
        return b.call(gather, [pointers, ir.LlvmConstant(I32, size), constant(mask, 1), constant(type, 0)])


def emit_search(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Blocks of values shared out."""
    search = Search.of(op_of(node, SearchSorted), *(v.type for v in node.present()))
    lines, n, count = search.lines, search.n, search.count
    b = ir.new_function(module, KERNEL, name)
    if lines * count == 0:
        b.ret_void()
        return Emitted(name, uses_threads=False)
    buffers, part, parts, _ = b.function.args
    bisection = Bisection(b, search)
    wide, size, itemsize = isa.machine.ordering.search_block, search.keys.dtype.itemsize, search.index.itemsize
    blocks = -(-count // wide)
    with counting(b, *share(b, lines * blocks, part, parts)) as unit:
        line, block = b.udiv(unit, index(blocks)), b.urem(unit, index(blocks))
        row = offset(b, pointer_at(b, buffers, 0), (line, n * size))
        start = times(b, block, wide)
        end = b.add(start, index(wide))
        end = b.select(b.icmp_unsigned("<", end, index(count)), end, index(count))
        full_end = b.add(start, b.and_(b.sub(end, start), index(-INTERLEAVED)))
        for values, low, high in ((INTERLEAVED, start, full_end), (1, full_end, end)):
            with counting(b, low, high, values) as i:
                number = b.add(times(b, line, count), i)
                value_address = offset(b, pointer_at(b, buffers, 1), (number, size))
                bisection.find(row, value_address, offset(b, pointer_at(b, buffers, 2), (number, itemsize)), values)
    b.ret_void()
    work = lines * count * max(1, n.bit_length()) * 8
    return Emitted(
        name,
        uses_threads=lines * blocks > 1 and work >= isa.machine.serial_nbytes,
        parts=min(MOST_PARTS, lines * blocks),
    )


native.register(SearchSorted, accepts_strides=False, name="search_sorted")(emit_search)

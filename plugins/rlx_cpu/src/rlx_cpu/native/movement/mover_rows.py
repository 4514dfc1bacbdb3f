"""Code that moves one row of a result, chosen by how it lies in the operand.

A row that is dense on both sides is copied; one that is reversed, or of every so many elements, is put in order a vector at
a time; a repeated element is stored in all lanes; anything else is moved element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

from rlx_core.codegen.movement.boxes import Axis
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, I64, address, copy_bytes, fill_bytes, shuffled, splat
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.nontemporal import store_nontemporal
from rlx_cpu.native.llvm.simd import counting, index, offset

UNROLL = 4
"""Elements that one pass moves where they are moved one by one."""

LONGEST_STEP = 8
"""Maximum stride in elements for which full vectors are loaded, of which most elements are discarded."""


class Stores(Enum):
    """The kind of a row's stores: ordinary or nontemporal (see `nontemporal`)."""

    ORDINARY = auto()
    NONTEMPORAL = auto()
    """The row begins at a cache line."""
    NONTEMPORAL_WITHIN = auto()
    """The row begins anywhere: its first cache line is looked for."""


def stores_of(isa: Isa, to: int, outer: Sequence[Axis], nbytes: int) -> Stores:
    """Return the kind of stores of rows of `nbytes` with an offset of `to` bytes and steps along `outer` to a cache line."""
    if all(step % CACHE_LINE == 0 for step in (to, *(axis.to for axis in outer))):
        return Stores.NONTEMPORAL
    return Stores.NONTEMPORAL_WITHIN if nbytes >= isa.machine.movement.aligned_row_nbytes else Stores.ORDINARY


Place = ir.LlvmValue | int


@frozen(eq=False)
class Rows:
    """Moves rows of elements of `itemsize` bytes: 1, 2, 4 or 8."""

    builder: ir.IRBuilder
    isa: Isa
    itemsize: int
    stores: Stores = Stores.ORDINARY

    @property
    def element(self) -> ir.IntType:
        return ir.IntType(8 * self.itemsize)

    @property
    def alignment(self) -> int:
        """The alignment of every access: 8 bytes may be a complex number of two floats."""
        return min(self.itemsize, 4)

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.isa.vector_bytes // self.itemsize

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(self.element, self.lanes)

    def row(self, to: ir.LlvmValue, source: ir.LlvmValue | None, axis: Axis) -> None:
        """One axis from end to end; zeros where there is no source."""
        size, step = self.itemsize, axis.source // self.itemsize
        if axis.to != size or (source is not None and axis.source % size):
            self.singly(to, source, axis)
        elif source is None:
            self._clear(to, axis.count)
        elif step == 1:
            self._copy(to, source, axis.count)
        elif step == 0:
            self._spread(to, source, axis.count)
        elif step == -1:
            self._reversed(to, source, axis.count)
        elif 1 < step <= LONGEST_STEP:
            self._stepped(to, source, axis.count, step)
        else:
            self.singly(to, source, axis)

    # ------------------------------------------------------------------------------- kinds of rows

    def _copy(self, to: ir.LlvmValue, source: ir.LlvmValue, count: int) -> None:
        """A row that is dense on both sides; a short one becomes a few moves, a long one the C library's."""

        def piece(first: Place, count: Place) -> None:
            self.whole(self._at(to, first), self._at(source, first), count)

        if self.stores is Stores.ORDINARY:
            piece(0, count)
        else:
            self._nontemporal(to, count, count, lambda i: self._load(self._at(source, i)), piece)

    def _clear(self, to: ir.LlvmValue, count: int) -> None:
        zeros = splat(self.builder, ir.LlvmConstant(self.element, 0), self.lanes)

        def piece(first: Place, count: Place) -> None:
            self.whole(self._at(to, first), None, count)

        if self.stores is Stores.ORDINARY:
            piece(0, count)
        else:
            self._nontemporal(to, count, count, lambda i: zeros, piece)

    def whole(self, to: ir.LlvmValue, source: ir.LlvmValue | None, count: Place) -> None:
        """Copy a number of elements that are dense on both sides, or clear them if there is no source."""
        b = self.builder
        nbytes = index(count * self.itemsize) if isinstance(count, int) else b.mul(count, index(self.itemsize))
        if source is None:
            fill_bytes(b, to, 0, nbytes)
        else:
            copy_bytes(b, to, source, nbytes)

    def _spread(self, to: ir.LlvmValue, source: ir.LlvmValue, count: int) -> None:
        """One element in all places of a row."""
        value = self._one(source)
        vector = splat(self.builder, value, self.lanes)
        self._vectors(to, count, count, lambda i: vector, lambda i: value)

    def _reversed(self, to: ir.LlvmValue, source: ir.LlvmValue, count: int) -> None:
        """A row from its end, which is where `source` points."""
        b, lanes, size = self.builder, self.lanes, self.itemsize
        first = address(b, source, -(lanes - 1) * size)

        def reversed_vector(i: Place) -> ir.LlvmValue:
            vector = self._load(self._at(first, i, -1))
            return shuffled(b, vector, vector, range(lanes - 1, -1, -1))

        self._vectors(to, count, count, reversed_vector, lambda i: self._one(self._at(source, i, -1)))

    def _stepped(self, to: ir.LlvmValue, source: ir.LlvmValue, count: int, step: int) -> None:
        """Every so many elements of whole vectors, the last of which ends before the last element of the row."""

        def kept(i: Place) -> ir.LlvmValue:
            read = [
                self._load(address(self.builder, self._at(source, i, step), k * self.isa.vector_bytes))
                for k in range(step)
            ]
            return self._every(read, step)

        self._vectors(to, count, count - 1, kept, lambda i: self._one(self._at(source, i, step)))

    def _every(self, read: Sequence[ir.LlvmValue], step: int) -> ir.LlvmValue:
        """Every `step`th element of as many vectors: what each has is put after what those before it have."""
        lanes = self.lanes
        origins = [divmod(k * step, lanes) for k in range(lanes)]
        gathered = read[0]
        for number in range(len(read)):
            # The first round takes from the first vector alone, which is both operands then.
            order = [
                place if number == 0 else k if whose < number else lanes + place
                for k, (whose, place) in enumerate(origins)
            ]
            gathered = shuffled(self.builder, gathered, read[number], order)
        return gathered

    def singly(self, to: ir.LlvmValue, source: ir.LlvmValue | None, axis: Axis) -> None:
        """A row element by element."""
        b = self.builder

        def one(position: ir.LlvmValue, k: int) -> None:
            if source is None:
                value: ir.LlvmValue = ir.LlvmConstant(self.element, 0)
            else:
                value = self._one(offset(b, source, (position, axis.source), k * axis.source))
            b.store(value, offset(b, to, (position, axis.to), k * axis.to), align=self.alignment)

        unrolled = axis.count // UNROLL * UNROLL
        if unrolled:
            with counting(b, 0, unrolled, UNROLL) as i:
                for k in range(UNROLL):
                    one(i, k)
        for k in range(axis.count - unrolled):
            one(index(unrolled), k)

    # ------------------------------------------------------------------------------------- vectors

    def _vectors(
        self,
        to: ir.LlvmValue,
        count: int,
        reach: int,
        vector: Callable[[Place], ir.LlvmValue],
        one: Callable[[Place], ir.LlvmValue],
    ) -> None:
        """A row whose vectors, up to place `reach`, and single elements are computed."""
        b = self.builder

        def piece(first: Place, count: Place) -> None:
            if isinstance(first, int) and isinstance(count, int) and count <= self.lanes:
                for k in range(first, first + count):
                    b.store(one(k), self._at(to, k), align=self.alignment)
                return
            start, length = (index(x) if isinstance(x, int) else x for x in (first, count))
            with counting(b, start, b.add(start, length)) as i:
                b.store(one(i), self._at(to, i), align=self.alignment)

        if self.stores is not Stores.ORDINARY:
            self._nontemporal(to, count, reach, vector, piece)
            return
        full_elements = reach // self.lanes * self.lanes
        if full_elements:
            with counting(b, 0, full_elements, self.lanes) as i:
                b.store(vector(i), self._at(to, i), align=self.alignment)
        piece(full_elements, count - full_elements)

    def _nontemporal(
        self,
        to: ir.LlvmValue,
        count: int,
        reach: int,
        vector: Callable[[Place], ir.LlvmValue],
        piece: Callable[[Place, Place], None],
    ) -> None:
        """A row whose whole lines, up to place `reach`, go past the caches; `piece` writes what lies before and after."""
        b, line = self.builder, CACHE_LINE // self.itemsize
        first: Place = 0
        end: Place = reach // line * line
        if self.stores is Stores.NONTEMPORAL_WITHIN:
            first = self._before_line(to, reach)
            end = b.add(first, b.and_(b.sub(index(reach), first), index(-line)))
            piece(0, first)
        with counting(b, first, end, line) as i:
            for k in range(0, line, self.lanes):
                position = b.add(i, index(k)) if k else i
                store_nontemporal(b, vector(position), self._at(to, position))
        piece(end, count - end if isinstance(end, int) else b.sub(index(count), end))

    def _before_line(self, to: ir.LlvmValue, reach: int) -> ir.LlvmValue:
        """Return how many elements lie before the first cache line, at most `reach`; all, if no element begins at a line."""
        b, size = self.builder, self.itemsize
        nbytes = b.and_(b.sub(index(0), b.ptrtoint(to, I64)), index(CACHE_LINE - 1))
        elements = b.udiv(nbytes, index(size))
        is_there = b.icmp_unsigned("==", b.urem(nbytes, index(size)), index(0))
        is_there = b.and_(is_there, b.icmp_unsigned("<", elements, index(reach)))
        return b.select(is_there, elements, index(reach))

    def _at(self, pointer: ir.LlvmValue, i: Place, step: int = 1) -> ir.LlvmValue:
        """`pointer` moved by `i` times `step` elements."""
        if isinstance(i, int):
            return address(self.builder, pointer, i * step * self.itemsize)
        return offset(self.builder, pointer, (i, step * self.itemsize))

    def _one(self, place: ir.LlvmValue) -> ir.LlvmValue:
        return self.builder.load(place, typ=self.element, align=self.alignment)

    def _load(self, place: ir.LlvmValue) -> ir.LlvmValue:
        return self.builder.load(place, typ=self.vector, align=self.alignment)

"""Loads and stores of a loop kernel: contiguous vectors, masked tails, single elements if memory is not contiguous.

Every access states the alignment of its element. A bool is a bit in registers and a byte in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.loops import Bound, Load, Store
from rlx_core.ir.dtypes import DType
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir, narrow
from rlx_cpu.native.llvm.build import (
    I1,
    I8,
    I32,
    I64,
    address,
    load_lanes,
    memory_type,
    prefetch,
    scaled,
    shuffled,
    splat,
    store_lanes,
)
from rlx_cpu.native.llvm.ir.numbers import constant, width
from rlx_cpu.native.llvm.lookups import has_lookup, lookup
from rlx_cpu.native.llvm.nontemporal import store_nontemporal
from rlx_cpu.native.llvm.sizes import Unsized, is_known, sized
from rlx_cpu.native.loops.walk import Position, Shape


@frozen(eq=False)
class KernelBuffers:
    """The buffers of one kernel."""

    builder: ir.IRBuilder
    shape: Shape
    buffers: Sequence[ir.LlvmValue]
    nontemporal: tuple[Store, ...] = ()
    """Stores that are nontemporal for full vectors."""
    loop: int = 0
    """Index of the current loop over a row."""
    loaded: dict[tuple[Load | Store, int, int], ir.LlvmValue] | None = None
    """Values loaded so far, by access and offset in bytes and lanes; `None` if memory may have changed since."""

    def _offset(self, strides: tuple[int, ...], offset: int, position: Position) -> ir.LlvmValue:
        """The byte offset of an access at the first lane."""
        b = self.builder
        total: ir.LlvmValue = sized(b, offset)
        for axis, stride in enumerate(strides):
            if stride and axis in position.index:
                step = scaled(b, position.index[axis], stride)
                total = step if isinstance(total, ir.LlvmConstant) and total.constant == 0 else b.add(total, step)
        return total

    def mask(self, position: Position) -> ir.LlvmValue | None:
        """The lanes that exist, as a vector of bits; `None` if all do."""
        return self._mask(self.shape.lanes, position.active)

    def _mask(self, lanes: int, active: int | ir.LlvmValue) -> ir.LlvmValue | None:
        if active == lanes:
            return None
        if isinstance(active, ir.LlvmValue):
            positions = ir.LlvmConstant(ir.VectorType(I64, lanes), list(range(lanes)))
            return self.builder.icmp_signed("<", positions, splat(self.builder, active, lanes))
        return ir.LlvmConstant(ir.VectorType(I1, lanes), [ir.LlvmConstant(I1, int(k < active)) for k in range(lanes)])

    def load(self, term: Load, position: Position, moved: Sequence[ir.LlvmValue]) -> ir.LlvmValue:
        """An element or a vector of them; `moved` are the values of the load's dynamic indices."""
        if self.loaded is None or term.dynamic or isinstance(position.active, ir.LlvmValue):
            return self._load(term, position, moved)
        key = term, self._ahead(term, position), position.active
        if key not in self.loaded:
            self.loaded[key] = self._load(term, position, moved)
        return self.loaded[key]

    def _load(self, term: Load, position: Position, moved: Sequence[ir.LlvmValue]) -> ir.LlvmValue:
        b, lanes, dtype = self.builder, self.shape.lanes, term.dtype
        place = self.place(term, position)
        entries = self._entries(term, moved)
        if entries is not None:
            return self.to_register(dtype, lookup(b, self.shape.isa, dtype, place, entries, moved[0], lanes))
        spread: ir.LlvmValue | None = None
        for index, (_, stride) in zip(moved, term.dynamic, strict=True):
            step = b.mul(index, splat(b, sized(b, stride), width(index)))
            if width(step) == 1:
                place = address(b, place, step)
            else:
                spread = step if spread is None else b.add(spread, step)
        stride = term.strides[self.shape.lane]
        align = dtype.itemsize
        if stride == 0 and spread is None:
            return self.to_register(dtype, b.load(place, typ=memory_type(dtype), align=align))
        if stride == dtype.itemsize and spread is None:
            mask = self.mask(position)
            ahead = self.shape.prefetch_distance(term, self.loop) if mask is None else 0
            if ahead:
                prefetch(b, address(b, place, ahead))
            return self.to_register(dtype, load_lanes(b, place, memory_type(dtype, lanes), align, mask))
        if spread is None and self.is_paired(term):
            return self._load_part(term, place, position)
        vector: ir.LlvmValue = constant(memory_type(dtype, lanes), 0)
        for k in self._single(position):
            one = address(b, place, k * stride)
            if spread is not None:
                one = address(b, one, b.extract_element(spread, ir.LlvmConstant(I32, k)))
            vector = b.insert_element(vector, b.load(one, typ=memory_type(dtype), align=align), ir.LlvmConstant(I32, k))
        return self.to_register(dtype, vector)

    def _entries(self, term: Load, moved: Sequence[ir.LlvmValue]) -> int | None:
        """Return the size of a small table of which each lane reads an entry, if instructions of the set look it up."""
        if len(moved) != 1 or width(moved[0]) == 1 or any(term.strides):
            return None
        (number, stride), *_ = term.dynamic
        bound = self.shape.kernel.values[number]
        if stride != term.dtype.itemsize or not isinstance(bound, Bound) or not is_known(bound.size):
            return None
        return bound.size if has_lookup(self.shape.isa, term.dtype, bound.size, self.shape.lanes) else None

    def is_paired(self, access: Load | Store) -> bool:
        """Return whether an access is of one part of complex elements that lie one after another."""
        dtype = self.shape.kernel.buffers[access.buffer].dtype
        return dtype.is_complex and access.strides[self.shape.lane] == dtype.itemsize

    def _load_part(self, term: Load, place: ir.LlvmValue, position: Position) -> ir.LlvmValue:
        """The real or the imaginary parts of neighbours: both are loaded, and LLVM loads them once for both."""
        b, lanes, width = self.builder, self.shape.lanes, term.dtype.itemsize
        assert isinstance(position.active, int), "complex elements have no code for sizes that are not known"
        part = term.offset // width % 2
        type = memory_type(term.dtype, 2 * lanes)
        both = load_lanes(b, address(b, place, -part * width), type, width, self._mask(2 * lanes, 2 * position.active))
        return shuffled(b, both, ir.LlvmConstant(type, ir.Undefined), range(part, 2 * lanes, 2))

    def store_pair(self, store: Store, position: Position, re: ir.LlvmValue, im: ir.LlvmValue) -> None:
        """Write both parts of neighbouring elements, interleaved; `store` is the store of the real parts."""
        b, lanes, width = self.builder, self.shape.lanes, self.shape.kernel.buffers[store.buffer].accessed.itemsize
        assert isinstance(position.active, int), "complex elements have no code for sizes that are not known"
        place = self.place(store, position)
        sides = splat(b, re, lanes), splat(b, im, lanes)
        both = shuffled(b, *sides, (k + side for k in range(lanes) for side in (0, lanes)))
        store_lanes(b, both, place, width, self._mask(2 * lanes, 2 * position.active))

    def store(self, store: Store, position: Position, value: ir.LlvmValue) -> None:
        """Write a value of the kernel to its result."""
        b, lanes = self.builder, self.shape.lanes
        dtype = self.shape.kernel.values[store.value].dtype
        place = self.place(store, position)
        value = self._to_memory(dtype, value)
        stride, align = store.strides[self.shape.lane], dtype.itemsize
        is_spread = stride != 0 or width(value) > 1
        # A tail of one lane is stored as a scalar: LLVM 22.1 writes 32 bits for the masked store of one lane that was just
        # truncated to 16 or 8 (tests/fuzz/cases/norm_of_columns_bf16.rlx.txt).
        if not is_spread or self.shape.size == 1 or (position.active == 1 and stride == dtype.itemsize):
            one = value if width(value) == 1 else b.extract_element(value, ir.LlvmConstant(I32, 0))
            b.store(one, place, align=align)
            return
        value = splat(b, value, lanes)
        if stride == dtype.itemsize:
            if position.active == lanes and store in self.nontemporal:
                store_nontemporal(b, value, place)
            else:
                store_lanes(b, value, place, align, self.mask(position))
            return
        for k in self._single(position):
            b.store(b.extract_element(value, ir.LlvmConstant(I32, k)), address(b, place, k * stride), align=align)

    def _single(self, position: Position) -> range:
        """The lanes that are accessed one by one."""
        if isinstance(position.active, ir.LlvmValue):
            raise Unsized("elements side by side along an axis whose size is not known")
        return range(position.active)

    def place(self, access: Load | Store, position: Position) -> ir.LlvmValue:
        """The address of an access at the first lane."""
        start = None if self.loaded is None else self.loaded.get((access, 0, 0))
        if start is None:
            start = address(
                self.builder, self.buffers[access.buffer], self._offset(access.strides, access.offset, position)
            )
            if self.loaded is not None:
                self.loaded[access, 0, 0] = start
        ahead = self._ahead(access, position)
        return address(self.builder, start, sized(self.builder, ahead)) if ahead else start

    def _ahead(self, access: Load | Store, position: Position) -> int:
        """Bytes that an access is ahead of the position of its axes."""
        return sum(access.strides[axis] * step for axis, step in position.steps.items())

    def prefetch_result(self, store: Store, position: Position) -> None:
        """Prefetch the line of a result, unless it goes past the caches; beyond the end of memory nothing happens."""
        if store not in self.nontemporal:
            prefetch(self.builder, self.place(store, position), is_written=True)

    def to_register(self, dtype: DType, value: ir.LlvmValue) -> ir.LlvmValue:
        """Return a value from memory in its register representation."""
        if dtype.is_narrow:
            return narrow.widened(self.builder, dtype, value, self.shape.isa)
        return self.builder.icmp_unsigned("!=", value, constant(value.type, 0)) if dtype.kind == "bool" else value

    def _to_memory(self, dtype: DType, value: ir.LlvmValue) -> ir.LlvmValue:
        if dtype.is_narrow:
            return narrow.narrowed(self.builder, dtype, value, self.shape.isa)
        if dtype.kind != "bool":
            return value
        return self.builder.zext(value, I8 if width(value) == 1 else ir.VectorType(I8, width(value)))

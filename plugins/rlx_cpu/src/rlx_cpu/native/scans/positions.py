"""Positions of extremes as native code: the first one, and NaN wins.

Along a row each lane keeps the best of its elements and its position, and a fixed tree over lanes prefers the earlier of equal
elements; across rows each lane is a row. The result is unique, so neither lanes nor threads can change it.
"""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.ordering import Extreme
from rlx_core.codegen.places import Layout
from rlx_core.codegen.scalars.table import DTYPES
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.pipeline.kernels import condition
from rlx_core.system.records import frozen
from rlx_cpu.native.contract import Call, Emitted, KernelForm
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, I64, Variable, address, register_type, shuffled, splat, starting
from rlx_cpu.native.llvm.elements import load_elements, pieces
from rlx_cpu.native.llvm.ir.numbers import constant, width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, offset, pointer_at, share
from rlx_cpu.native.llvm.sizes import is_known
from rlx_cpu.native.table import native

UNROLL = 4
"""Vectors of one row that are searched side by side: a comparison and its choice take longer than a load."""


@condition("an element type that registers hold", asks_sizes=False)
def is_held(node: Node) -> bool:
    (x,) = node.present()
    return x.dtype in DTYPES


@frozen
class Best:
    """The best so far, and where it was; vectors of equal width, or scalars."""

    value: ir.LlvmValue
    place: ir.LlvmValue


@frozen(eq=False)
class PositionSearch:
    """Code for one op on [outer, n, inner] elements.

    Attributes:
        extreme: The problem.
    """

    builder: ir.IRBuilder
    isa: Isa
    extreme: Extreme

    @property
    def dtype(self) -> DType:
        return self.extreme.keys.dtype

    @property
    def n(self) -> int:
        return self.extreme.n

    @property
    def inner(self) -> int:
        return self.extreme.inner

    @property
    def index(self) -> DType:
        """The dtype of the result."""
        return self.extreme.index

    @property
    def places(self) -> ir.IntType:
        """The integer type of positions on the axis."""
        return I32 if self.n < 1 << 31 else I64

    def is_better(self, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
        """Return whether `x` is chosen over an earlier `y`."""
        return self.extreme.is_better(self.builder, x, y)

    def later(self, best: Best, x: ir.LlvmValue, place: ir.LlvmValue) -> Best:
        """The better of the best so far and an element after it."""
        b = self.builder
        wins = self.is_better(x, best.value)
        return Best(b.select(wins, x, best.value), b.select(wins, place, best.place))

    def either(self, one: Best, other: Best) -> Best:
        """The better of two, of equals the earlier."""
        b = self.builder
        is_tied = b.not_(self.is_better(one.value, other.value))
        is_earlier = b.and_(is_tied, b.icmp_unsigned("<", other.place, one.place))
        wins = b.or_(self.is_better(other.value, one.value), is_earlier)
        return Best(b.select(wins, other.value, one.value), b.select(wins, other.place, one.place))

    def load(self, place: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
        return load_elements(self.builder, self.isa, self.dtype, place, lanes)

    def store(self, best: Best, to: ir.LlvmValue) -> None:
        b, lanes = self.builder, width(best.place)
        type = register_type(self.index, lanes)
        place = (b.zext if self.index.itemsize == 8 else b.trunc)(best.place, type)
        b.store(place, to, align=self.index.itemsize)

    def loop(self, start: Best, first: int, end: int, step: int, source: ir.LlvmValue, pitch: int, places: Any) -> Best:
        """`later` for places `first`, `first + step`, … before `end`."""
        b = self.builder
        best, place = (Variable.new(b, v.type) for v in (start.value, start.place))
        best.set(b, start.value)
        place.set(b, start.place)
        with counting(b, first, end, step) as i:
            before = Best(best.value(b), place.value(b))
            after = self.later(before, self.load(offset(b, source, (i, pitch)), width(start.value)), places(i))
            best.set(b, after.value)
            place.set(b, after.place)
        return Best(best.value(b), place.value(b))

    # ---------------------------------------------------------------------------------- two ways

    def along(self, source: ir.LlvmValue, to: ir.LlvmValue, lanes: int) -> None:
        """One row that is dense: lanes are places."""
        b, size = self.builder, self.dtype.itemsize
        if self.n >= 8 * lanes:
            lanes *= UNROLL
        while lanes > self.n:
            lanes //= 2
        full_elements = self.n // lanes * lanes
        numbers = (
            ir.LlvmConstant(ir.VectorType(self.places, lanes), list(range(lanes)))
            if lanes > 1
            else constant(self.places, 0)
        )

        def places(i: ir.LlvmValue) -> ir.LlvmValue:
            return b.add(splat(b, self.at(i), lanes), numbers)

        best = self.loop(Best(self.load(source, lanes), numbers), lanes, full_elements, lanes, source, size, places)
        while lanes > 1:
            lanes //= 2
            low, high = (Best(*(self.half(v, k, lanes) for v in (best.value, best.place))) for k in (0, lanes))
            best = self.either(low, high)
        self.store(self.loop(best, full_elements, self.n, 1, source, size, self.at), to)

    def half(self, value: ir.LlvmValue, start: int, lanes: int) -> ir.LlvmValue:
        b = self.builder
        if lanes == 1:
            return b.extract_element(value, ir.LlvmConstant(I32, start))
        return shuffled(b, value, value, range(start, start + lanes))

    def across(self, source: ir.LlvmValue, to: ir.LlvmValue, lanes: int) -> None:
        """Neighbouring lines: lanes are lines."""
        b = self.builder
        start = Best(self.load(source, lanes), splat(b, constant(self.places, 0), lanes))
        pitch = self.inner * self.dtype.itemsize
        self.store(self.loop(start, 1, self.n, 1, source, pitch, lambda i: splat(b, self.at(i), lanes)), to)

    def at(self, i: ir.LlvmValue) -> ir.LlvmValue:
        """A position as an integer of the width that lanes keep."""
        return i if self.places is I64 else self.builder.trunc(i, I32)


def emit_position(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Rows, or vectors of lines, shared out."""
    extreme = extreme_of(node.op, layout)
    write_position(module, extreme, isa, name)
    return Emitted(name, uses_threads=uses_threads(extreme, isa))


def extreme_of(op: Op, layout: Layout) -> Extreme:
    """Return the problem of known sizes."""
    (x,) = layout.required(0)
    assert isinstance(op, ArgMax | ArgMin), "registered for these"
    return Extreme.of(op, x.type)


def lanes_of(extreme: Extreme, isa: Isa) -> int:
    """Return the lanes. Positions are as wide as elements in registers: bytes use 16 lanes, or a row would fill all
    registers."""
    return min(isa.lanes(extreme.keys.dtype), max(isa.vector_bytes // 4, 1))


def blocks_of(extreme: Extreme, isa: Isa) -> int:
    """Vectors of neighbouring lines."""
    return 1 if extreme.inner == 1 else -(-extreme.inner // lanes_of(extreme, isa))


def uses_threads(extreme: Extreme, isa: Isa) -> bool:
    """Return whether threads share it, for known sizes."""
    nbytes = extreme.lines * extreme.n * extreme.keys.dtype.itemsize
    return extreme.outer * blocks_of(extreme, isa) > 1 and nbytes >= isa.machine.serial_nbytes


def write_position(module: ir.Module, extreme: Extreme, isa: Isa, name: str) -> None:
    """The function of a search."""
    outer, n, inner, itemsize = extreme.outer, extreme.n, extreme.inner, extreme.index.itemsize
    b, buffers, tid, nthreads = starting(module, name)
    if outer * n * inner == 0:
        b.ret_void()
        return
    search = PositionSearch(b, isa, extreme)
    source, to = pointer_at(b, buffers, 0), pointer_at(b, buffers, 1)
    lanes, blocks = lanes_of(extreme, isa), blocks_of(extreme, isa)
    low, high = share(b, outer * blocks, tid, nthreads)
    with counting(b, low, high) as unit:
        line, block = b.udiv(unit, index(blocks)), b.urem(unit, index(blocks))
        line_start = offset(
            b, source, (line, n * inner * search.dtype.itemsize), (block, lanes * search.dtype.itemsize)
        )
        place = offset(b, to, (line, inner * itemsize), (block, lanes * itemsize))
        if inner == 1:
            search.along(line_start, place, lanes)
        else:
            _lines(search, line_start, place, lanes, b.icmp_unsigned("==", block, index(blocks - 1)))
    b.ret_void()


def _lines(search: PositionSearch, source: ir.LlvmValue, to: ir.LlvmValue, lanes: int, is_last: ir.LlvmValue) -> None:
    """A vector of lines; the last may be narrower."""
    b, left = search.builder, search.inner % lanes
    with b.if_else(is_last) as (then, otherwise):
        with then:
            for first, count in pieces(0, left or lanes, lanes):
                start = address(b, source, first * search.dtype.itemsize)
                search.across(start, address(b, to, first * search.index.itemsize), count)
        with otherwise:
            search.across(source, to, lanes)


def sized_position(node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> KernelForm | None:
    """Finds the form of a search of any number of rows, or of groups of neighbouring lines."""
    (x,) = node.present()
    assert isinstance(node.op, ArgMax | ArgMin), "registered for these"
    op, extreme = node.op, Extreme.of(node.op, x.type)
    if not (is_known(extreme.n) and is_known(extreme.inner)):
        return None

    def call(layout: Layout, sizes: DimBinding) -> Call:
        return Call(sizes, uses_threads=uses_threads(extreme_of(op, layout), isa))

    def emit(module: ir.Module, name: str) -> Emitted:
        write_position(module, extreme, isa, name)
        return Emitted(name)

    return KernelForm(repr(extreme), call, emit)


native.register(ArgMax, ArgMin, when=is_held, accepts_strides=False, name="position", sized=sized_position)(
    emit_position
)

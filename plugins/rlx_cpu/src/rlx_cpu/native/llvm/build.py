"""Small words for building LLVM IR: types by dtype, splats, counted loops, accesses that say their alignment.

Registers hold `bool` as i1 and memory holds it as a byte; f16 and bf16 are f32 in registers and 16 bits in memory; everything
else is the same in both. A value is a scalar or a vector of the kernel's lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, f16, f32, f64
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, suffix, width
from rlx_cpu.native.llvm.sizes import sized

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
VOID = ir.VoidType()
KERNEL = ir.FunctionType(VOID, [POINTER, I64, I64, I64])
"""A step's function: buffers, part, parts, thread. A function may omit the last argument: by the C calling conventions of our
platforms it is then in a register that is not read."""

CALLED = ir.FunctionType(VOID, [POINTER, I64, I64, I64, I64])
"""The type with which every step's function is called: after the arguments of `KERNEL`, the address of the team of waiting
threads (`llvm.team`), 0 for a single thread. Only functions with nested graphs use it."""

OUTER = '"rlx-outer"'
"""An attribute of functions that do little but call others which take long: their machine code is made in half the time."""

HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


def register_type(dtype: DType, lanes: int = 1) -> Any:
    """The type of a value of `dtype` in registers; a vector for more than one lane."""
    accumulator = dtype.accumulator
    scalar = (
        FLOAT
        if accumulator is f32
        else DOUBLE
        if accumulator is f64
        else I1
        if accumulator.kind == "bool"
        else _integer(accumulator)
    )
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def memory_type(dtype: DType, lanes: int = 1) -> Any:
    """The same in memory, where a bool is a byte and narrow floats are 16 bits; LLVM has a type for one of the two."""
    if dtype.is_narrow:
        scalar = HALF if dtype is f16 else I16
        return scalar if lanes == 1 else ir.VectorType(scalar, lanes)
    if dtype.kind == "bool":
        return I8 if lanes == 1 else ir.VectorType(I8, lanes)
    return register_type(dtype, lanes)


def _integer(dtype: DType) -> ir.IntType:
    assert dtype.is_integer, f"{dtype} has no register type here"
    return ir.IntType(8 * dtype.itemsize)


def splat(builder: ir.IRBuilder, value: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
    """A scalar in every lane."""
    if lanes == 1 or width(value) == lanes:
        return value
    type = ir.VectorType(value.type, lanes)
    if isinstance(value, ir.LlvmConstant):
        return ir.LlvmConstant(type, [value] * lanes)
    undefined = ir.LlvmConstant(type, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.LlvmConstant(I32, 0))
    return shuffled(builder, first, undefined, [0] * lanes)


def starting(module: ir.Module, name: str) -> tuple[ir.IRBuilder, ir.LlvmValue, ir.LlvmValue, ir.LlvmValue]:
    """A new kernel function: its builder, and its buffers, thread and number of threads."""
    b = ir.new_function(module, ir.FunctionType(VOID, [POINTER, I64, I64]), name)
    b.function.args[0].add_attribute("noalias")
    buffers, tid, nthreads = b.function.args
    return b, buffers, tid, nthreads


def load_lanes(b: ir.IRBuilder, place: ir.LlvmValue, type: Any, align: int, mask: ir.LlvmValue | None) -> ir.LlvmValue:
    """Consecutive elements; lanes that a mask hides are 0, and their memory is not accessed."""
    if mask is None:
        return b.load(place, typ=type, align=align)
    function = declare(b.module, f"llvm.masked.load.{suffix(type)}.p0", type, [POINTER, I32, mask.type, type])
    return b.call(function, [place, ir.LlvmConstant(I32, align), mask, constant(type, 0)])


def store_lanes(
    b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue, align: int, mask: ir.LlvmValue | None
) -> None:
    """Store consecutive elements; the memory of lanes that a mask hides is not accessed."""
    if mask is None:
        b.store(value, place, align=align)
        return
    types = [value.type, POINTER, I32, mask.type]
    function = declare(b.module, f"llvm.masked.store.{suffix(value.type)}.p0", VOID, types)
    b.call(function, [value, place, ir.LlvmConstant(I32, align), mask])


def shuffled(b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue, lanes: Iterable[int]) -> ir.LlvmValue:
    """A vector of lanes of two vectors, counted through both."""
    order = list(lanes)
    return b.shuffle_vector(x, y, ir.LlvmConstant(ir.VectorType(I32, len(order)), order))


CACHE_LINE = 64
"""Bytes."""


def index(value: int) -> ir.LlvmConstant:
    """A constant of the type that sizes and offsets have."""
    return ir.LlvmConstant(I64, value)


def least(b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
    """The smaller of two signed integers."""
    return b.select(b.icmp_signed("<", x, y), x, y)


def most(b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
    """The larger of two signed integers."""
    return b.select(b.icmp_signed(">", x, y), x, y)


def fill_bytes(b: ir.IRBuilder, to: ir.LlvmValue, byte: int, nbytes: ir.LlvmValue) -> None:
    """Set bytes: some instructions for a small constant number, otherwise the C library's `memset`."""
    function = declare(b.module, "llvm.memset.p0.i64", VOID, [POINTER, I8, I64, I1])
    b.call(function, [to, ir.LlvmConstant(I8, byte), nbytes, ir.LlvmConstant(I1, 0)])


def copy_bytes(b: ir.IRBuilder, to: ir.LlvmValue, source: ir.LlvmValue, nbytes: ir.LlvmValue) -> None:
    """Copy bytes between memory that does not overlap; as `fill_bytes`, with `memcpy`."""
    function = declare(b.module, "llvm.memcpy.p0.p0.i64", VOID, [POINTER, POINTER, I64, I1])
    b.call(function, [to, source, nbytes, ir.LlvmConstant(I1, 0)])


def prefetch(b: ir.IRBuilder, place: ir.LlvmValue, *, is_written: bool = False, locality: int = 3) -> None:
    """Fetch a line before it is read or written, into L1, or L2 (`locality` 2). A place that is nowhere
    does no harm."""
    function = declare(b.module, "llvm.prefetch.p0", VOID, [POINTER, I32, I32, I32])
    b.call(function, [place, *(ir.LlvmConstant(I32, x) for x in (int(is_written), locality, 1))])


def address(builder: ir.IRBuilder, base: ir.LlvmValue, nbytes: ir.LlvmValue | Dim) -> ir.LlvmValue:
    """`base` moved by a number of bytes."""
    if isinstance(nbytes, int) and nbytes == 0:
        return base
    return builder.moved(base, nbytes if isinstance(nbytes, ir.LlvmValue) else sized(builder, nbytes))


def pointer_to(builder: ir.IRBuilder, word: ir.LlvmValue, nbytes: int = 0) -> ir.LlvmValue:
    """The address in a word, moved by a number of bytes."""
    return address(builder, builder.inttoptr(word, POINTER), nbytes)


def scaled(builder: ir.IRBuilder, index: ir.LlvmValue, factor: Dim) -> ir.LlvmValue:
    """`index * factor`, without an instruction where there is nothing to do."""
    if factor == 1:
        return index
    return builder.mul(index, sized(builder, factor))


def variable(builder: ir.IRBuilder, type: Any) -> ir.Alloca:
    """Stack memory for one value, in the entry block so that it becomes a register."""
    with builder.goto_entry_block():
        return builder.alloca(type)


@frozen(eq=False)
class Variable:
    """A variable of the function under construction; see `variable`."""

    place: ir.LlvmValue
    type: Any

    @classmethod
    def new(cls, b: ir.IRBuilder, type: Any) -> Variable:
        """Return a variable that has no value yet."""
        return cls(variable(b, type), type)

    @classmethod
    def of(cls, b: ir.IRBuilder, value: ir.LlvmValue) -> Variable:
        """Return a new variable with an initial value."""
        result = cls.new(b, value.type)
        result.set(b, value)
        return result

    def value(self, b: ir.IRBuilder) -> ir.LlvmValue:
        return b.load(self.place, typ=self.type, align=align_of(self.type))

    def set(self, b: ir.IRBuilder, value: ir.LlvmValue) -> None:
        b.store(value, self.place, align=align_of(self.type))


def align_of(type: Any) -> int:
    """Bytes that an access of a private variable may count on: its element size, as everywhere."""
    element: Any = type.element if isinstance(type, ir.VectorType) else type
    if isinstance(element, ir.PointerType):
        return 8
    return {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}.get(element.__class__) or max(1, element.width // 8)


@contextmanager
def counting(
    builder: ir.IRBuilder, start: Dim | ir.LlvmValue, stop: Dim | ir.LlvmValue, step: Dim = 1
) -> Iterator[ir.LlvmValue]:
    """Emit a loop over `range(start, stop, step)`; the code built inside `with` is its body."""
    first, end = (x if isinstance(x, ir.LlvmValue) else sized(builder, x) for x in (start, stop))
    function = builder.function
    before = builder.block
    head = function.append_basic_block("loop")
    body = function.append_basic_block("body")
    done = function.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(I64)
    number.add_incoming(first, before)
    builder.cbranch(builder.icmp_signed("<", number, end), body, done)
    builder.position_at_end(body)
    yield number
    following = builder.add(number, sized(builder, step))
    number.add_incoming(following, builder.block)
    builder.branch(head)
    builder.position_at_end(done)

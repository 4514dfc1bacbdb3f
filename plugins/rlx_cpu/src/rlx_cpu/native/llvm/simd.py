"""Vectors in LLVM IR: the operations used by products and attention.

One `Simd` fixes a module, an element type and a number of lanes. Addresses are byte offsets from a pointer, because strides are
in bytes; every access states its alignment, because the default for a vector is its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.dims import Dim, Expr
from rlx_core.ir.dtypes import DType
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import (
    I32,
    I64,
    POINTER,
    address,
    counting,
    index,
    load_lanes,
    register_type,
    shuffled,
    splat,
    store_lanes,
)
from rlx_cpu.native.llvm.ir.assembler import intrinsic
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.sizes import sized

__all__ = ["Simd", "counting", "index", "offset", "pointer_at", "share", "times", "transposed"]


def times(b: ir.IRBuilder, value: ir.LlvmValue, factor: Dim) -> ir.LlvmValue:
    """`value * factor`, for a factor that no loop changes; a constant if both are."""
    if isinstance(factor, Expr):
        return b.mul(value, sized(b, factor))
    if isinstance(value, ir.LlvmConstant):
        return index(value.constant * factor)
    return index(0) if factor == 0 else value if factor == 1 else b.mul(value, index(factor))


def offset(
    b: ir.IRBuilder, pointer: ir.LlvmValue, *terms: Dim | ir.LlvmValue | tuple[ir.LlvmValue, Dim]
) -> ir.LlvmValue:
    """`pointer` moved by bytes: each term is a number, a value, or a value times a number."""
    fixed = 0
    for term in terms:
        moved = times(b, *term) if isinstance(term, tuple) else term
        if isinstance(moved, int):
            fixed += moved
        elif isinstance(moved, ir.LlvmConstant):
            fixed += moved.constant
        else:
            pointer = address(b, pointer, moved)
    return address(b, pointer, fixed)


def pointer_at(b: ir.IRBuilder, buffers: ir.LlvmValue, position: int) -> ir.LlvmValue:
    """One of the pointers that a kernel is given."""
    return b.load(offset(b, buffers, 8 * position), typ=POINTER, align=8)


def share(
    b: ir.IRBuilder, items: Dim | ir.LlvmValue, tid: ir.LlvmValue, nthreads: ir.LlvmValue
) -> tuple[ir.LlvmValue, ir.LlvmValue]:
    """The range of `items` that one thread does: contiguous, and as long as any other's within one."""
    count = items if isinstance(items, ir.LlvmValue) else sized(b, items)
    low = b.sdiv(b.mul(tid, count), nthreads)
    high = b.sdiv(b.mul(b.add(tid, index(1)), count), nthreads)
    return low, high


def transposed(b: ir.IRBuilder, rows: Sequence[ir.LlvmValue]) -> list[ir.LlvmValue]:
    """Vectors of as many lanes as there are vectors, as a matrix, transposed: log₂ rounds of interleaving."""
    lanes = len(rows)
    half, (low, high), vectors = lanes // 2, _interleaved(lanes), list(rows)
    for _ in range(lanes.bit_length() - 1):
        # Interleaving row i with row i + lanes/2 rotates the bits of every element's address by one.
        vectors = [b.shuffle_vector(vectors[i], vectors[i + half], which) for i in range(half) for which in (low, high)]
    return vectors


def _interleaved(lanes: int) -> tuple[ir.LlvmConstant, ir.LlvmConstant]:
    """Return the shuffles of two vectors into lanes in turn: those of the low halves, and those of the high halves."""
    order = [x for i in range(lanes) for x in (i, lanes + i)]
    kind = ir.VectorType(I32, lanes)
    return ir.LlvmConstant(kind, order[:lanes]), ir.LlvmConstant(kind, order[lanes:])


class Simd:
    """Vectors of one dtype.

    Args:
        module: Module in which intrinsics are declared.
        isa: Decides how many lanes a vector has.
        dtype: f32 or f64, or an integer for products.
    """

    def __init__(self, module: ir.Module, isa: Isa, dtype: DType) -> None:
        self.module = module
        self.isa = isa
        self.dtype = dtype
        self.itemsize = dtype.itemsize
        self.lanes = isa.lanes(dtype)
        self.nbytes = isa.vector_bytes
        self.element = register_type(dtype)
        self.vector = ir.VectorType(self.element, self.lanes)

    # ------------------------------------------------------------------------------------- values

    def constant(self, value: float) -> ir.LlvmConstant:
        """The same number in every lane."""
        return constant(self.vector, value)

    @property
    def zero(self) -> ir.LlvmConstant:
        return self.constant(0.0)

    def splat(self, b: ir.IRBuilder, scalar: ir.LlvmValue) -> ir.LlvmValue:
        """A value in every lane; of any element type."""
        return splat(b, scalar, self.lanes)

    def positions(self, b: ir.IRBuilder, start: ir.LlvmValue) -> ir.LlvmValue:
        """`start, start + 1, …`, one per lane."""
        lanes = ir.LlvmConstant(ir.VectorType(I64, self.lanes), list(range(self.lanes)))
        return b.add(self.splat(b, start), lanes)

    def below(self, b: ir.IRBuilder, start: ir.LlvmValue, bound: Dim | ir.LlvmValue) -> ir.LlvmValue:
        """A mask of the lanes whose position, counted from `start`, is less than `bound`."""
        end = bound if isinstance(bound, ir.LlvmValue) else sized(b, bound)
        return b.icmp_signed("<", self.positions(b, start), self.splat(b, end))

    # ------------------------------------------------------------------------------------- memory

    def load_scalar(self, b: ir.IRBuilder, pointer: ir.LlvmValue, align: int = 0) -> ir.LlvmValue:
        return b.load(pointer, typ=self.element, align=align or self.itemsize)

    def load(
        self, b: ir.IRBuilder, pointer: ir.LlvmValue, mask: ir.LlvmValue | None = None, align: int = 0
    ) -> ir.LlvmValue:
        """Load consecutive elements; masked lanes are 0 and their memory is not accessed.

        Args:
            align: Alignment in bytes; by default the element size.
        """
        return load_lanes(b, pointer, self.vector, align or self.itemsize, mask)

    def store(
        self,
        b: ir.IRBuilder,
        value: ir.LlvmValue,
        pointer: ir.LlvmValue,
        mask: ir.LlvmValue | None = None,
        align: int = 0,
    ) -> None:
        """Consecutive elements; lanes that the mask hides stay as they were."""
        store_lanes(b, value, pointer, align or self.itemsize, mask)

    def store_spread(
        self,
        b: ir.IRBuilder,
        value: ir.LlvmValue,
        pointer: ir.LlvmValue,
        stride: int,
        count: ir.LlvmValue | None,
        align: int = 0,
    ) -> None:
        """Store elements with a stride of `stride` bytes, for the first `count` lanes or all of them.

        Args:
            align: Alignment in bytes; by default the element size.
        """
        align = align or self.itemsize
        for lane in range(self.lanes):
            element = b.extract_element(value, ir.LlvmConstant(I32, lane))
            place = offset(b, pointer, lane * stride)
            if count is None:
                b.store(element, place, align=align)
                continue
            with b.if_then(b.icmp_signed("<", index(lane), count)):
                b.store(element, place, align=align)

    # --------------------------------------------------------------------------------- arithmetic

    def multiply_add(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue, z: ir.LlvmValue) -> ir.LlvmValue:
        """`x * y + z`, rounded once where the machine can."""
        return intrinsic(b, "llvm.fmuladd", x, y, z)

    def add(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
        """`x + y`, modulo 2^bits for integers."""
        return b.add(x, y) if self.dtype.is_integer else b.fadd(x, y)

    def maximum(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
        """The larger of two; `y` where `x` is NaN, `x` where `y` is."""
        return b.select(b.fcmp_ordered(">", x, y), x, y)

    def reduce(self, b: ir.IRBuilder, value: ir.LlvmValue, combine: str) -> ir.LlvmValue:
        """All lanes combined by `add` or `max` in a fixed tree: halves on halves."""
        width = self.lanes
        while width > 1:
            width //= 2
            low, high = (shuffled(b, value, value, range(start, start + width)) for start in (0, width))
            value = b.fadd(low, high) if combine == "add" else self.maximum(b, low, high)
        return b.extract_element(value, ir.LlvmConstant(I32, 0))

    def transposed(self, b: ir.IRBuilder, rows: Sequence[ir.LlvmValue]) -> list[ir.LlvmValue]:
        """Return the transposition of a square matrix with one vector per row."""
        assert len(rows) == self.lanes, "a square block"
        return transposed(b, rows)

    def sums(self, b: ir.IRBuilder, rows: Sequence[ir.LlvmValue]) -> ir.LlvmValue:
        """The sum of each of as many vectors as lanes, one per lane: halves on halves, as in `reduce`, all at once."""
        assert len(rows) == self.lanes, "a square block"
        shuffles, vectors = _interleaved(self.lanes), list(rows)
        while len(vectors) > 1:
            middle = len(vectors) // 2
            vectors = [
                b.fadd(*(b.shuffle_vector(vectors[i], vectors[i + middle], which) for which in shuffles))
                for i in range(middle)
            ]
        return vectors[0]

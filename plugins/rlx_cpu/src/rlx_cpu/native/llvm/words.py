"""The operand of one step along k in the inner loop of a product: an element, or a pair of bf16 or i16 for one instruction.

A *word* fills one lane of a register. Words of f32 and f64 are elements; narrow elements are widened to words when they are
loaded or packed. A word of two bf16, with step 2i in its lower half, is moved like an f32 and is an operand of `vdpbf16ps`,
which adds both products to an f32 sum. A word of two i16 is moved like an i32 and is an operand of `vpmaddwd`, which adds both
products: exactly, because an i32 holds the sum of two products of i16, modulo 2^32. Elements of i8 and u8 are widened to i16.
"""

from __future__ import annotations

from typing import Final

from rlx_core.ir.dtypes import DType, bf16, f32, i8, i16, i32, u8
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import FLOAT, I16, I32, shuffled
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, in_lanes, width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd, offset
from rlx_cpu.native.llvm.stored import Stored

PAIRED_INTEGERS: Final = (i8, u8, i16)
"""Integers that are multiplied as pairs of i16."""


def sums_of(factors: DType, result: DType) -> DType:
    """Return the dtype of the sums of a product: i32 for integers that are multiplied in pairs, also if fewer bits are stored."""
    return i32 if factors in PAIRED_INTEGERS and result.itemsize <= i32.itemsize else result.accumulator


@frozen(eq=False)
class Words:
    """Words of one operand dtype.

    Attributes:
        stored: The elements in memory; its `simd` holds the sums.
        per_word: Elements along k in a word.
    """

    stored: Stored
    per_word: int = 1

    @classmethod
    def plain(cls, simd: Simd) -> Words:
        """Words that are elements in memory too."""
        return cls(Stored(simd, simd.dtype))

    @classmethod
    def of(cls, module: ir.Module, isa: Isa, operand: DType, sums: DType) -> Words:
        """The words in which operands of one dtype are multiplied, with sums of another."""
        stored = Stored(Simd(module, isa, sums), operand)
        is_pair = (operand is bf16 and sums is f32 and isa.multiplies_bf16) or (
            operand in PAIRED_INTEGERS and sums is i32
        )
        return cls(stored, 2 if is_pair else 1)

    @classmethod
    def of_product(cls, module: ir.Module, isa: Isa, factors: DType, result: DType) -> Words:
        """The words of a product of two operands of one dtype, with a result of another."""
        return cls.of(module, isa, factors, sums_of(factors, result))

    @property
    def simd(self) -> Simd:
        return self.stored.simd

    @property
    def is_pair(self) -> bool:
        return self.per_word == 2

    @property
    def is_integer(self) -> bool:
        """Whether a word is a pair of i16."""
        return self.is_pair and self.simd.dtype is i32

    @property
    def itemsize(self) -> int:
        """Bytes of a word."""
        return self.simd.itemsize

    @property
    def stored_itemsize(self) -> int:
        """Bytes of a word's elements in memory."""
        return self.stored.itemsize * self.per_word

    @property
    def nbytes(self) -> int:
        """Bytes of a vector of words."""
        return self.simd.nbytes

    @property
    def in_memory(self) -> bool:
        """Whether neighbours along k in memory are words as they lie there (of an even k, for pairs)."""
        return self.stored.is_same or (self.is_pair and self.stored_itemsize == self.itemsize)

    @property
    def align(self) -> int:
        """Bytes to which a word in an operand is aligned."""
        return self.stored.itemsize

    def count(self, k: int) -> int:
        """Words along k."""
        return -(-k // self.per_word)

    # ----------------------------------------------------------------------------------- from memory

    def scalar(self, b: ir.IRBuilder, place: ir.LlvmValue, by_k: int, *, is_whole: bool = True) -> ir.LlvmValue:
        """Load one word, whose elements have a stride of `by_k` bytes; the second half is 0 if the word is partial."""
        if not self.is_pair:
            return self.stored.load_scalar(b, place)
        if by_k == self.stored.itemsize and is_whole and self.in_memory:
            return self.simd.load_scalar(b, place, align=self.align)
        if self.is_integer:
            halves = [place, offset(b, place, by_k)] if is_whole else [place]
            low, *second = (self._half(b, b.load(p, typ=self.stored.element, align=self.align)) for p in halves)
            low = b.zext(low, I32)
            return b.or_(low, b.shl(b.zext(second[0], I32), ir.LlvmConstant(I32, 16))) if second else low
        low = b.zext(b.load(place, typ=I16, align=2), I32)
        if not is_whole:
            return b.bitcast(low, FLOAT)
        high = b.zext(b.load(offset(b, place, by_k), typ=I16, align=2), I32)
        return b.bitcast(b.or_(low, b.shl(high, ir.LlvmConstant(I32, 16))), FLOAT)

    def across(
        self,
        b: ir.IRBuilder,
        place: ir.LlvmValue,
        by_k: int,
        mask: ir.LlvmValue | None = None,
        align: int = 0,
        count: int | None = None,
        *,
        is_whole: bool = True,
    ) -> ir.LlvmValue:
        """A vector of words of one step, of columns or rows that are neighbours in memory: by default one per lane."""
        if not self.is_pair:
            return self.stored.load(b, place, mask, align, count)
        wide = ir.VectorType(I32, count or self.simd.lanes)
        if self.is_integer:
            first = self.stored.load_bits(b, place, mask, align, count)
            second: ir.LlvmValue = constant(first.type, 0)
            if is_whole:
                second = self.stored.load_bits(b, offset(b, place, by_k), mask, align, count)
            order = [lane for i in range(wide.count) for lane in (i, wide.count + i)]
            return b.bitcast(self._half(b, shuffled(b, first, second, order)), wide)
        low = b.zext(self.stored.load_bits(b, place, mask, count=count), wide)
        if is_whole:
            high = b.zext(self.stored.load_bits(b, offset(b, place, by_k), mask, count=count), wide)
            low = b.or_(low, b.shl(high, constant(high.type, 16)))
        return b.bitcast(low, ir.VectorType(FLOAT, wide.count))

    def along(self, b: ir.IRBuilder, place: ir.LlvmValue, align: int = 0) -> ir.LlvmValue:
        """A vector of words of consecutive steps, of elements that are neighbours along k; pairs are whole."""
        if not self.is_pair:
            return self.stored.load(b, place)
        if self.in_memory:
            return self.simd.load(b, place, align=self.align)
        bits = self.stored.load_bits(b, place, None, align, self.simd.lanes * self.per_word)
        return b.bitcast(self._half(b, bits), self.simd.vector)

    def _half(self, b: ir.IRBuilder, value: ir.LlvmValue) -> ir.LlvmValue:
        """Elements as i16, in as many lanes."""
        if self.stored.dtype is i16:
            return value
        return (b.sext if self.stored.dtype is i8 else b.zext)(value, in_lanes(I16, width(value)))

    # ------------------------------------------------------------------------------------ arithmetic

    def multiply_add(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue, z: ir.LlvmValue) -> ir.LlvmValue:
        """`x * y + z`: a product a lane, or two."""
        simd = self.simd
        if not self.is_pair:
            return simd.multiply_add(b, x, y, z)
        if self.is_integer:
            return b.add(z, self._dot(b, x, y))
        pairs = ir.VectorType(I32, simd.lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{8 * simd.nbytes}"
        function = declare(b.module, name, simd.vector, [simd.vector, pairs, pairs])
        return b.call(function, [z, b.bitcast(x, pairs), b.bitcast(y, pairs)])

    def _dot(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
        """The sum of both products of i16 of each lane."""
        simd = self.simd
        name = simd.isa.i16_pair_product
        if name is not None:
            halves = ir.VectorType(I16, 2 * simd.lanes)
            function = declare(b.module, name, simd.vector, [halves, halves])
            return b.call(function, [b.bitcast(x, halves), b.bitcast(y, halves)])
        sixteen = constant(simd.vector, 16)
        low = (b.ashr(b.shl(each, sixteen), sixteen) for each in (x, y))
        high = (b.ashr(each, sixteen) for each in (x, y))
        return b.add(b.mul(*low), b.mul(*high))

"""The operand of one step along k in the inner loop of a product: an element, or the elements that one instruction multiplies: a
pair of bf16 or i16, or four bytes.

A *word* fills one lane of a register. Words of f32 and f64 are elements; narrow elements are widened to words when they are
loaded or packed. A word of two bf16, with step 2i in its lower half, is moved like an f32 and is an operand of `vdpbf16ps`,
which adds both products to an f32 sum. A word of two i16 is moved like an i32 and is an operand of `vpmaddwd`, which adds both
products: exactly, because an i32 holds the sum of two products of i16, modulo 2^32. Elements of i8 and u8 are widened to i16.

On processors with an instruction for products of four bytes (`Isa.quad_product`), a word of i8 or u8 has four of them, and sums
are the same integers. x86 multiplies bytes without sign by bytes with sign: there the sign bits of the first factor are flipped,
and the sums of every column begin with a correction, which is a further word in front of those of a panel (`Words.correction`).
"""

from __future__ import annotations

from typing import Final

from rlx_core.ir.dtypes import DType, bf16, f32, i8, i16, i32, u8
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import FLOAT, I8, I16, I32, shuffled
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, in_lanes, width
from rlx_cpu.native.llvm.isa import Isa, QuadProduct
from rlx_cpu.native.llvm.simd import Simd, offset
from rlx_cpu.native.llvm.stored import Stored

PAIRED_INTEGERS: Final = (i8, u8, i16)
"""Integers that are multiplied as pairs of i16, those of 8 bits by quads where there is an instruction."""

FLIPS: Final = 0x80808080
"""The sign bits of four bytes."""


def sums_of(factors: DType, result: DType) -> DType:
    """Return the dtype of the sums of a product: i32 for integers that are multiplied in pairs, also if fewer bits are stored."""
    return i32 if factors in PAIRED_INTEGERS and result.itemsize <= i32.itemsize else result.accumulator


@frozen(eq=False)
class Words:
    """Words of one operand dtype.

    Attributes:
        stored: The elements in memory; its `simd` holds the sums.
        per_word: Elements along k in a word.
        quad: The instruction that multiplies words of four bytes.
        flips: Whether bytes become words with their sign bits flipped.
    """

    stored: Stored
    per_word: int = 1
    quad: QuadProduct | None = None
    flips: bool = False

    @classmethod
    def plain(cls, simd: Simd) -> Words:
        """Words that are elements in memory too."""
        return cls(Stored(simd, simd.dtype))

    @classmethod
    def of(cls, module: ir.Module, isa: Isa, operand: DType, sums: DType) -> Words:
        """The words in which operands of one dtype are multiplied, with sums of another."""
        stored = Stored(Simd(module, isa, sums), operand)
        quad = isa.quad_product(operand, operand) if operand in (i8, u8) and sums is i32 else None
        if quad is not None:
            return cls(stored, 4, quad)
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
    def first(self) -> Words:
        """The words of the first factor of a product whose second factor has these."""
        return self if self.quad is None or not self.quad.flips else evolve(self, flips=True)

    @property
    def is_corrected(self) -> bool:
        """Whether sums of columns of the second factor begin with a correction, because bits of the first are flipped."""
        return self.quad is not None and self.quad.flips

    @property
    def is_single(self) -> bool:
        """Whether a word is an element."""
        return self.per_word == 1

    @property
    def is_integer(self) -> bool:
        """Whether a word is a pair of i16, or four bytes."""
        return not self.is_single and self.simd.dtype is i32

    @property
    def kind(self) -> str:
        """What a word is, for reports."""
        if self.quad is not None:
            return f"quads of {self.stored.dtype}"
        return f"pairs of {'i16' if self.is_integer else 'bf16'}"

    @property
    def form(self) -> str:
        """The form in which a bound operand is packed."""
        if self.quad is not None:
            return "corrected quads" if self.is_corrected else "quads"
        return "panels" if self.is_single else "pairs"

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
        """Whether neighbours along k in memory are words as they lie there (of a k without a partial word)."""
        has_words = not self.is_single and self.stored_itemsize == self.itemsize
        return self.stored.is_same or (has_words and not self.flips)

    @property
    def align(self) -> int:
        """Bytes to which a word in an operand is aligned."""
        return self.stored.itemsize

    def count(self, k: int) -> int:
        """Words along k."""
        return -(-k // self.per_word)

    def terms_of_last(self, k: int) -> int:
        """Elements of the last of the words along k, if that is partial; else those of one that could be."""
        return k % self.per_word or 1

    # ----------------------------------------------------------------------------------- from memory

    def scalar(self, b: ir.IRBuilder, place: ir.LlvmValue, by_k: int, *, terms: int | None = None) -> ir.LlvmValue:
        """Load one word, whose elements have a stride of `by_k` bytes.

        Args:
            terms: Elements that there are; all of the word by default. The others are 0, before bits are flipped.
        """
        if self.is_single:
            return self.stored.load_scalar(b, place)
        is_whole = terms is None
        if by_k == self.stored.itemsize and is_whole and self.stored_itemsize == self.itemsize:
            return self._flipped(b, self.simd.load_scalar(b, place, align=self.align))
        if self.quad is not None:
            return self._flipped(b, self._gathered(b, place, by_k, terms or self.per_word))
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
        terms: int | None = None,
    ) -> ir.LlvmValue:
        """A vector of words of one step, of columns or rows that are neighbours in memory: by default one per lane.

        Args:
            terms: As for `scalar`.
        """
        if self.is_single:
            return self.stored.load(b, place, mask, align, count)
        wide = ir.VectorType(I32, count or self.simd.lanes)
        is_whole = terms is None
        if self.quad is not None:
            lines = [
                self.stored.load_bits(b, offset(b, place, by_k * i), mask, align, wide.count)
                for i in range(terms or self.per_word)
            ]
            lines += [constant(lines[0].type, 0)] * (self.per_word - len(lines))
            halves = ir.VectorType(I16, wide.count)
            low, high = (b.bitcast(self._interleaved(b, *lines[i : i + 2]), halves) for i in (0, 2))
            return self._flipped(b, b.bitcast(self._interleaved(b, low, high), wide))
        if self.is_integer:
            first = self.stored.load_bits(b, place, mask, align, count)
            second: ir.LlvmValue = constant(first.type, 0)
            if is_whole:
                second = self.stored.load_bits(b, offset(b, place, by_k), mask, align, count)
            return b.bitcast(self._half(b, self._interleaved(b, first, second)), wide)
        low = b.zext(self.stored.load_bits(b, place, mask, count=count), wide)
        if is_whole:
            high = b.zext(self.stored.load_bits(b, offset(b, place, by_k), mask, count=count), wide)
            low = b.or_(low, b.shl(high, constant(high.type, 16)))
        return b.bitcast(low, ir.VectorType(FLOAT, wide.count))

    def along(self, b: ir.IRBuilder, place: ir.LlvmValue, align: int = 0) -> ir.LlvmValue:
        """A vector of words of consecutive steps, of elements that are neighbours along k; words are whole."""
        if self.is_single:
            return self.stored.load(b, place)
        if self.stored_itemsize == self.itemsize:
            return self._flipped(b, self.simd.load(b, place, align=self.align))
        bits = self.stored.load_bits(b, place, None, align, self.simd.lanes * self.per_word)
        return b.bitcast(self._half(b, bits), self.simd.vector)

    def _gathered(self, b: ir.IRBuilder, place: ir.LlvmValue, by_k: int, terms: int) -> ir.LlvmValue:
        """One word of bytes with a stride."""
        value, *others = (b.zext(b.load(offset(b, place, by_k * i), typ=I8, align=1), I32) for i in range(terms))
        for i, other in enumerate(others, 1):
            value = b.or_(value, b.shl(other, ir.LlvmConstant(I32, 8 * i)))
        return value

    def _flipped(self, b: ir.IRBuilder, value: ir.LlvmValue) -> ir.LlvmValue:
        """Words with the sign bits flipped, if they are to be."""
        return b.xor(value, constant(value.type, FLIPS)) if self.flips else value

    def _interleaved(self, b: ir.IRBuilder, first: ir.LlvmValue, second: ir.LlvmValue) -> ir.LlvmValue:
        """The elements of two vectors in turn."""
        lanes = width(first)
        return shuffled(b, first, second, [lane for i in range(lanes) for lane in (i, lanes + i)])

    def _half(self, b: ir.IRBuilder, value: ir.LlvmValue) -> ir.LlvmValue:
        """Elements as i16, in as many lanes."""
        if self.stored.dtype is i16:
            return value
        return (b.sext if self.stored.dtype is i8 else b.zext)(value, in_lanes(I16, width(value)))

    # ------------------------------------------------------------------------------------ arithmetic

    def multiply_add(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue, z: ir.LlvmValue) -> ir.LlvmValue:
        """`x * y + z`: a product a lane, or two, or four."""
        simd = self.simd
        if self.is_single:
            return simd.multiply_add(b, x, y, z)
        if self.quad is not None:
            return multiply_add_quads(b, self.quad, x, y, z)
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

    def correction(self, b: ir.IRBuilder, y: ir.LlvmValue, total: ir.LlvmValue) -> ir.LlvmValue:
        """A total less the product of a word of the first factor, whose elements are 0 before bits are flipped, and `y`."""
        assert self.quad is not None, "words of bytes"
        zero = constant(self.simd.vector, 0)
        return b.sub(total, multiply_add_quads(b, self.quad, constant(self.simd.vector, FLIPS), y, zero))


def multiply_add_quads(
    b: ir.IRBuilder, quad: QuadProduct, x: ir.LlvmValue, y: ir.LlvmValue, z: ir.LlvmValue
) -> ir.LlvmValue:
    """`z` and the four products of bytes of each lane of `x`, the first factor, and `y`."""
    vector = z.type
    kind = ir.VectorType(I8, 4 * width(z)) if quad.takes_bytes else vector
    factors = [b.bitcast(each, kind) if quad.takes_bytes else each for each in (x, y)]
    function = declare(b.module, quad.intrinsic, vector, [vector, kind, kind])
    return b.call(function, [z, *(reversed(factors) if quad.is_swapped else factors)])

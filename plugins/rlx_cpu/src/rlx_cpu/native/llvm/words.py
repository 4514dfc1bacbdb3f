"""The operand of one step along k in the inner loop of a product: an element, or a pair of bf16 for one instruction.

A *word* fills one lane of a register. Words of f32 and f64 are elements; narrow elements are widened to words when they are
loaded or packed. A word of two bf16, with step 2i in its lower half, is moved like an f32 and is an operand of `vdpbf16ps`,
which adds both products to an f32 sum.
"""

from __future__ import annotations

from rlx_core.ir.dtypes import DType, bf16, f32
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import FLOAT, I16, I32
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import Simd, offset
from rlx_cpu.native.llvm.stored import Stored


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
        return cls(stored, 2 if operand is bf16 and sums is f32 and isa.multiplies_bf16 else 1)

    @property
    def simd(self) -> Simd:
        return self.stored.simd

    @property
    def is_pair(self) -> bool:
        return self.per_word == 2

    @property
    def itemsize(self) -> int:
        """Bytes of a word."""
        return self.simd.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of a vector of words."""
        return self.simd.nbytes

    @property
    def in_memory(self) -> bool:
        """Whether neighbours along k in memory are words as they lie there (of an even k, for pairs)."""
        return self.stored.is_same or self.is_pair

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
        if by_k == self.stored.itemsize and is_whole:
            return self.simd.load_scalar(b, place, align=self.align)
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
        low = b.zext(self.stored.load_bits(b, place, mask, count=count), wide)
        if is_whole:
            high = b.zext(self.stored.load_bits(b, offset(b, place, by_k), mask, count=count), wide)
            low = b.or_(low, b.shl(high, constant(high.type, 16)))
        return b.bitcast(low, ir.VectorType(FLOAT, wide.count))

    def along(self, b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
        """A vector of words of consecutive steps, of elements that are neighbours along k; pairs are whole."""
        if not self.is_pair:
            return self.stored.load(b, place)
        return self.simd.load(b, place, align=self.align)

    # ------------------------------------------------------------------------------------ arithmetic

    def multiply_add(self, b: ir.IRBuilder, x: ir.LlvmValue, y: ir.LlvmValue, z: ir.LlvmValue) -> ir.LlvmValue:
        """`x * y + z`: a product a lane, or two."""
        simd = self.simd
        if not self.is_pair:
            return simd.multiply_add(b, x, y, z)
        pairs = ir.VectorType(I32, simd.lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{8 * simd.nbytes}"
        function = declare(b.module, name, simd.vector, [simd.vector, pairs, pairs])
        return b.call(function, [z, b.bitcast(x, pairs), b.bitcast(y, pairs)])

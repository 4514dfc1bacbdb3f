"""Vectors of elements whose dtypes in memory and in registers differ.

f16 and bf16 are loaded as f32 and rounded once when stored, to nearest with ties to even; f32 is loaded as f64 if a product
needs wider sums; a bool is a byte in memory and a mask bit in registers. If both dtypes are equal, there is no conversion.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bool_, f16, f32, i8, i32
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import HALF, I8, I16, load_lanes, register_type, store_lanes
from rlx_cpu.native.llvm.ir.numbers import constant, width
from rlx_cpu.native.llvm.narrow import narrowed, widened
from rlx_cpu.native.llvm.simd import Simd
from rlx_cpu.native.llvm.sizes import sized


@frozen(eq=False)
class Stored:
    """Elements of `dtype` in memory, of `simd.dtype` in registers.

    Attributes:
        simd: The registers.
        dtype: A float dtype that `simd.dtype` holds exactly, or bool or i8, which are only read as floats; or, for sums of
            integers, an integer of at most as many bits, which is read as it is and written modulo 2^bits.
    """

    simd: Simd
    dtype: DType

    @classmethod
    def next_to(cls, sums: Simd, dtype: DType) -> Stored:
        """Return elements of `dtype` that are read or written next to sums: as many lanes, floats as f32 if the sums are i32."""
        is_float = sums.dtype is i32 and dtype.is_float
        return cls(Simd(sums.module, sums.isa, f32) if is_float else sums, dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in memory of as many elements as a vector has lanes."""
        return self.simd.lanes * self.dtype.itemsize

    @property
    def is_same(self) -> bool:
        """Whether memory and registers hold the same."""
        return self.dtype is self.simd.dtype

    def load_scalar(self, b: ir.IRBuilder, place: ir.LlvmValue) -> ir.LlvmValue:
        return self._widened(b, b.load(place, typ=self.element, align=self.itemsize))

    def load(
        self,
        b: ir.IRBuilder,
        place: ir.LlvmValue,
        mask: ir.LlvmValue | None = None,
        align: int = 0,
        count: int | None = None,
    ) -> ir.LlvmValue:
        """Consecutive elements, by default one per lane; 0 in lanes that the mask hides, which are not touched."""
        return self._widened(b, self.load_bits(b, place, mask, align, count))

    def load_bits(
        self,
        b: ir.IRBuilder,
        place: ir.LlvmValue,
        mask: ir.LlvmValue | None,
        align: int = 0,
        count: int | None = None,
    ) -> ir.LlvmValue:
        """The same as memory has it."""
        kind = ir.VectorType(self.element, count or self.simd.lanes)
        return load_lanes(b, place, kind, align or self.itemsize, mask)

    def store(
        self, b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue, mask: ir.LlvmValue | None = None
    ) -> None:
        """Consecutive elements; lanes that the mask hides stay as they were."""
        store_lanes(b, self._narrowed(b, value), place, self.itemsize, mask)

    def store_scalar(self, b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue) -> None:
        b.store(self._narrowed(b, value), place, align=self.itemsize)

    def store_spread(
        self, b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue, stride: int, count: ir.LlvmValue | None
    ) -> None:
        """Store elements with a stride of `stride` bytes, for the first `count` lanes or all of them."""
        self.simd.store_spread(b, self._narrowed(b, value), place, stride, count, self.itemsize)

    def store_row(
        self, b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue, stride: int, column: ir.LlvmValue, size: Dim
    ) -> None:
        """Store elements with a stride of `stride` bytes in a row of `size` from `column` on, up to its end."""
        if stride != self.itemsize:
            self.store_spread(b, value, place, stride, b.sub(sized(b, size), column))
            return
        self.store(b, value, place, self.simd.below(b, column, size) if size % self.simd.lanes else None)

    # -------------------------------------------------------------------------------- conversions

    @property
    def element(self) -> Any:
        """The type of memory accesses: an integer for any 16-bit dtype, and a byte for a bool."""
        return I8 if self.dtype is bool_ else I16 if self.dtype.is_narrow else register_type(self.dtype)

    def _like(self, value: ir.LlvmValue, element: Any) -> Any:
        return element if width(value) == 1 else ir.VectorType(element, width(value))

    def _widened(self, b: ir.IRBuilder, value: ir.LlvmValue) -> ir.LlvmValue:
        if self.dtype is i8 and self.simd.dtype.is_float:
            return b.sitofp(value, self._like(value, self.simd.element))
        if self.is_same or self.dtype.is_integer:
            return value
        if self.dtype is bool_:
            return b.icmp_unsigned("!=", value, constant(value.type, 0))
        if self.dtype is not f32:
            bits = b.bitcast(value, self._like(value, HALF)) if self.dtype is f16 else value
            value = widened(b, self.dtype, bits, self.simd.isa)
        return value if self.simd.dtype is f32 else b.fpext(value, self._like(value, self.simd.element))

    def _narrowed(self, b: ir.IRBuilder, value: ir.LlvmValue) -> ir.LlvmValue:
        if self.is_same:
            return value
        if self.dtype.is_integer:
            stored = self._like(value, self.element)
            return value if value.type == stored else b.trunc(value, stored)
        assert self.dtype.is_narrow, "results are stored in the dtype of the sums, or in 16 bits of f32"
        assert self.simd.dtype is f32, "16 bits are f32 in registers"
        narrow = narrowed(b, self.dtype, value, self.simd.isa)
        return b.bitcast(narrow, self._like(narrow, I16)) if self.dtype is f16 else narrow

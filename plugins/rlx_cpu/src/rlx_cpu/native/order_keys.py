"""Elements as unsigned integers of their own width, in the order that sorting has: one place that knows what comes first.

Zeros of either sign are one key and so are all NaN, which come after every number; a descending order has the complements, so
that ties stay in index order there too. Keys are made with integer instructions alone: f16 and bf16 need not be widened.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_cpu.native import ir
from rlx_cpu.native.build import constant

__all__ = ["Keys"]

_MANTISSA = {f16: 10, bf16: 7, f32: 23}


@frozen
class Keys:
    """The keys of elements of one dtype.

    Attributes:
        dtype: Of the elements; a real one or bool.
        is_descending: Whether large elements come first.
    """

    dtype: DType
    is_descending: bool = False

    @property
    def bits(self) -> int:
        """Of a key, and of an element."""
        return 8 * self.dtype.itemsize

    def type(self, lanes: int = 1) -> Any:
        """Of a key, and of an element as memory has it."""
        return ir.IntType(self.bits) if lanes == 1 else ir.VectorType(ir.IntType(self.bits), lanes)

    def load(self, b: ir.IRBuilder, place: ir.Value, lanes: int = 1) -> ir.Value:
        """The keys of neighbours in memory."""
        return self.of(b, b.load(place, typ=self.type(lanes), align=self.dtype.itemsize))

    def of(self, b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        """The key of an element's bits."""
        key = self._of_float(b, x) if self.dtype.is_float else x
        if self.dtype.kind == "int":
            key = b.xor(x, constant(x.type, 1 << (self.bits - 1)))
        return b.not_(key) if self.is_descending else key

    def _of_float(self, b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        sign = 1 << (self.bits - 1)
        mantissa = _MANTISSA.get(self.dtype, 52)
        infinity = (1 << (self.bits - 1)) - (1 << mantissa)
        size = b.and_(x, constant(x.type, sign - 1))
        # Larger bits mean a larger number on the right and a smaller one on the left.
        is_left = b.icmp_signed("<", x, constant(x.type, 0))
        right = b.or_(size, constant(x.type, sign))
        key = b.select(is_left, b.sub(constant(x.type, sign), size), right)
        is_nan = b.icmp_unsigned(">", size, constant(x.type, infinity))
        return b.select(is_nan, constant(x.type, -1), key)

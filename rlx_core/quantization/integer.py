"""Integer codes with a scale for each block, and a zero point where blocks are asymmetric.

`value = (code - zero) · scale`. The largest magnitude of a block, or its smallest and largest value, have codes at the ends of
the range. The zero point is a float, so that an asymmetric block represents its smallest value to within rounding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.dtypes import f32, i8, u8
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_statistics import astype
from rlx_core.quantization.bits import packed_pairs, pairs
from rlx_core.system.records import frozen


@frozen
class IntegerScheme(Scheme):
    """Base class: blocks of 32 integers.

    Attributes:
        lowest, highest: The range of codes.
        is_asymmetric: Whether each block has a zero point.
    """

    block: int | None = 32
    lowest: ClassVar[int]
    highest: ClassVar[int]
    is_asymmetric: ClassVar[bool] = False

    @property
    @abstractmethod
    def codes(self) -> SchemeField:
        """The field of the codes."""

    @abstractmethod
    def unpacked(self, codes: Any) -> Any:
        """Return integers, one for each element, from the field of the codes; written in ops."""

    @abstractmethod
    def packed(self, codes: np.ndarray) -> np.ndarray:
        """Return the field of the codes; the inverse of `unpacked`."""

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        zero = (SchemeField("zero", f32),) if self.is_asymmetric else ()
        return (self.codes, SchemeField("scale", f32), *zero)

    @property
    def middle(self) -> int:
        """The zero point of symmetric blocks."""
        return (self.lowest + self.highest + 1) // 2

    def decode(self, fields: Mapping[str, Any]) -> Any:
        codes = astype(self.unpacked(fields["codes"]), "f32")
        zero = fields["zero"][..., None] if self.is_asymmetric else np.float32(self.middle)
        return (codes - zero if self.is_asymmetric or self.middle else codes) * fields["scale"][..., None]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        wide = values.astype(np.float64)
        if self.is_asymmetric:
            lowest, highest = wide.min(-1), wide.max(-1)
            scale = ((highest - lowest) / (self.highest - self.lowest)).astype(np.float32)
            zero = (self.lowest - divided(lowest, scale)).astype(np.float32)
            zero = np.where(scale > 0, zero, np.float32(self.lowest - 1))  # a constant block: (lowest - zero) · scale
            scale = np.where(scale > 0, scale, lowest.astype(np.float32))
        else:
            scale = (np.abs(wide).max(-1) / (self.highest - self.middle)).astype(np.float32)
            zero = np.full(scale.shape, self.middle, np.float32)
        rounded = np.rint(divided(wide, scale[..., None]) + zero[..., None])
        codes = np.clip(rounded, self.lowest, self.highest).astype(np.int64)
        fields = {"codes": self.packed(codes), "scale": scale}
        return {**fields, "zero": zero} if self.is_asymmetric else fields


def divided(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return `values / scale` in f64, and 0 where the scale is 0."""
    wide = np.asarray(scale, np.float64)
    return np.divide(values, wide, out=np.zeros(np.broadcast_shapes(values.shape, wide.shape)), where=wide != 0)


@frozen
class Int8(IntegerScheme):
    """Codes of 8 bits, -127 to 127."""

    name: ClassVar[str] = "rlx.int8"
    lowest: ClassVar[int] = -127
    highest: ClassVar[int] = 127

    @property
    def middle(self) -> int:
        return 0

    @property
    def codes(self) -> SchemeField:
        return SchemeField("codes", i8, (self.elements,))

    def unpacked(self, codes: Any) -> Any:
        return codes

    def packed(self, codes: np.ndarray) -> np.ndarray:
        return codes.astype(np.int8)


@frozen
class Int8Asymmetric(Int8):
    """Codes of 8 bits, -128 to 127, and a zero point."""

    name: ClassVar[str] = "rlx.int8_asymmetric"
    lowest: ClassVar[int] = -128
    is_asymmetric: ClassVar[bool] = True


@frozen
class Int4(IntegerScheme):
    """Codes of 4 bits, 1 to 15 around 8, two to a byte: the first in the low half."""

    name: ClassVar[str] = "rlx.int4"
    multiple: ClassVar[int] = 2
    lowest: ClassVar[int] = 1
    highest: ClassVar[int] = 15

    @property
    def codes(self) -> SchemeField:
        return SchemeField("codes", u8, (self.elements // 2,))

    def unpacked(self, codes: Any) -> Any:
        return pairs(codes)

    def packed(self, codes: np.ndarray) -> np.ndarray:
        return packed_pairs(codes)


@frozen
class Int4Asymmetric(Int4):
    """Codes of 4 bits, 0 to 15, and a zero point."""

    name: ClassVar[str] = "rlx.int4_asymmetric"
    lowest: ClassVar[int] = 0
    is_asymmetric: ClassVar[bool] = True

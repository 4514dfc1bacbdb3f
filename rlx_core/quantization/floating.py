"""Float codes of 8 and 4 bits with a scale for each block.

FP8 is E4M3 and E5M2 of Micikevicius et al., "FP8 formats for deep learning" (2022): E4M3 has no infinities and one NaN for each
sign. FP4 is E2M1. NVFP4 scales blocks of 16 by E4M3 numbers and all of them by one f32; MXFP4 scales blocks of 32 by powers of
two ("OCP microscaling formats", version 1.0, 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np

from rlx_core.ir.dtypes import f32, u8
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_search import take
from rlx_core.ops.array_statistics import astype
from rlx_core.ops.bitwise import bitwise_and, bitwise_left_shift, bitwise_right_shift
from rlx_core.ops.comparison import equal, less, not_equal
from rlx_core.ops.floating import bitcast
from rlx_core.ops.selection import where
from rlx_core.quantization.bits import low_then_high, packed_low_then_high, packed_pairs, pairs
from rlx_core.quantization.integer import divided
from rlx_core.system.records import frozen


class FloatFormat(NamedTuple):
    """A float format of at most 8 bits: a sign, an exponent and a mantissa.

    Attributes:
        numpy: The scalar type of ml_dtypes, which rounds numbers.
        exponent, mantissa: Bits of each.
        has_infinities: Whether the largest exponent means infinities and NaN, as in IEEE 754.
        has_nan: Whether the code of all ones is NaN.
    """

    numpy: type
    exponent: int
    mantissa: int
    has_infinities: bool = False
    has_nan: bool = False

    @property
    def bias(self) -> int:
        return int(2 ** (self.exponent - 1) - 1)

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return int(2 ** (self.exponent + self.mantissa))

    def decode(self, codes: Any) -> Any:
        """Return the numbers of codes, `f32` from `u8`; written in ops. Codes of few bits are looked up."""
        if self.sign <= 8:
            table = np.arange(2 * self.sign, dtype=np.uint8).view(self.numpy).astype(np.float32)
            return take(table, astype(codes, "i32"), out_of_bounds="clip")
        wide = astype(codes, "u32")
        magnitude = bitwise_and(wide, np.uint32(self.sign - 1))
        exponent = bitwise_right_shift(magnitude, np.uint32(self.mantissa))
        mantissa = bitwise_and(magnitude, np.uint32(2**self.mantissa - 1))
        # The exponent and the mantissa of an f32 follow each other in the same order.
        normal = bitwise_left_shift(magnitude, np.uint32(23 - self.mantissa)) + np.uint32((127 - self.bias) << 23)
        subnormal = astype(mantissa, "f32") * np.float32(2.0 ** (1 - self.bias - self.mantissa))
        value = where(equal(exponent, np.uint32(0)), subnormal, bitcast(normal, "f32"))
        if self.has_infinities:
            special = where(equal(mantissa, np.uint32(0)), np.float32(np.inf), np.float32(np.nan))
            value = where(equal(exponent, np.uint32(2**self.exponent - 1)), special, value)
        if self.has_nan:
            value = where(equal(magnitude, np.uint32(self.sign - 1)), np.float32(np.nan), value)
        return where(not_equal(bitwise_and(wide, np.uint32(self.sign)), np.uint32(0)), -value, value)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the nearest codes, `u8`: ties to even codes, and the largest number beyond the range."""
        return np.clip(values, -self.largest, self.largest).astype(np.float32).astype(self.numpy).view(np.uint8)

    @property
    def largest(self) -> float:
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]  # a class of ml_dtypes


E4M3 = FloatFormat(ml_dtypes.float8_e4m3fn, 4, 3, has_nan=True)
E5M2 = FloatFormat(ml_dtypes.float8_e5m2, 5, 2, has_infinities=True)
E2M1 = FloatFormat(ml_dtypes.float4_e2m1fn, 2, 1)


@frozen
class FloatScheme(Scheme):
    """Base class: float codes and one f32 scale for each block."""

    format: ClassVar[FloatFormat]

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (self.codes, SchemeField("scale", f32))

    @property
    def codes(self) -> SchemeField:
        """The field of the codes."""
        return SchemeField("codes", u8, (self.elements,))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return self.format.decode(self.unpacked(fields["codes"])) * self.scale_of(fields)[..., None]

    def scale_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the factor of each block, `f32[..., blocks]`; written in ops."""
        return fields["scale"]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        scale = (np.abs(values).max(-1) / np.float64(self.format.largest)).astype(np.float32)
        return {"codes": self.coded(values, scale), "scale": scale}

    def coded(self, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return the field of the codes of values, given the factor of each block."""
        return self.packed(self.format.encode(divided(values.astype(np.float64), scale[..., None])))

    def unpacked(self, codes: Any) -> Any:
        """Return one code for each element; written in ops."""
        return codes

    def packed(self, codes: np.ndarray) -> np.ndarray:
        """Return the field of the codes; the inverse of `unpacked`."""
        return codes


@frozen
class Fp8E4M3(FloatScheme):
    """FP8 E4M3 with a scale for each row, or block if one is given."""

    name: ClassVar[str] = "rlx.fp8_e4m3"
    format: ClassVar[FloatFormat] = E4M3


@frozen
class Fp8E5M2(FloatScheme):
    """FP8 E5M2 with a scale for each row, or block if one is given."""

    name: ClassVar[str] = "rlx.fp8_e5m2"
    format: ClassVar[FloatFormat] = E5M2


@frozen
class Fp4E2M1(FloatScheme):
    """FP4 E2M1, two codes to a byte, with an f32 scale for each block."""

    block: int | None = 32
    name: ClassVar[str] = "rlx.fp4_e2m1"
    multiple: ClassVar[int] = 2
    format: ClassVar[FloatFormat] = E2M1

    @property
    def codes(self) -> SchemeField:
        return SchemeField("codes", u8, (self.elements // 2,))

    def unpacked(self, codes: Any) -> Any:
        return pairs(codes)

    def packed(self, codes: np.ndarray) -> np.ndarray:
        return packed_pairs(codes)


@frozen
class Nvfp4(Fp4E2M1):
    """FP4 E2M1 with an E4M3 scale for each block of 16 and one f32 scale; a scale that is NaN counts as 0."""

    block: int | None = 16
    name: ClassVar[str] = "rlx.nvfp4"

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (self.codes, SchemeField("scale", u8), SchemeField("global_scale", f32, is_shared=True))

    def scale_of(self, fields: Mapping[str, Any]) -> Any:
        scale = E4M3.decode(fields["scale"])
        return where(equal(scale, scale), scale, np.float32(0)) * fields["global_scale"]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        largest = np.abs(values).max(-1) / np.float64(E2M1.largest)
        shared = np.asarray(largest.max(initial=0.0) / E4M3.largest, np.float32)
        scale = E4M3.encode(divided(largest, shared))
        fields = {"scale": scale, "global_scale": shared}
        return {"codes": self.coded(values, np.asarray(self.scale_of(fields))), **fields}


@frozen
class Mxfp4(Fp4E2M1):
    """FP4 E2M1 with a power of two for each block of 32: MXFP4, in the order of GGUF files."""

    name: ClassVar[str] = "rlx.mxfp4"
    is_fixed: ClassVar[bool] = True
    ggml_id: ClassVar[int | None] = 39

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("exponent", u8), self.codes)

    def decode(self, fields: Mapping[str, Any]) -> Any:
        # GGML multiplies integers, which have no negative zero, by half of the power: 2**128 is no f32, and half of it is.
        doubled = (2 * self.format.decode(np.arange(16, dtype=np.uint8))).astype(np.int8)
        integers = take(doubled, astype(self.unpacked(fields["codes"]), "i32"), out_of_bounds="clip")
        return astype(integers, "f32") * half_power(fields["exponent"])[..., None]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        _, exponent = np.frexp(np.abs(values).max(-1))  # the largest is f · 2**exponent, 0.5 ≤ f < 1; E2M1 reaches 2**2
        biased = np.clip(exponent - 3 + 127, 0, 254).astype(np.uint8)
        scale = np.ldexp(np.float64(1), biased.astype(np.int64) - 127)
        return {"exponent": biased, "codes": self.coded(values, scale)}

    def unpacked(self, codes: Any) -> Any:
        return low_then_high(codes)

    def packed(self, codes: np.ndarray) -> np.ndarray:
        return packed_low_then_high(codes)


def half_power(exponents: Any) -> Any:
    """Return `2**(exponent - 128)`, `f32` from `u8`; written in ops. The two smallest are subnormal numbers."""
    wide = astype(exponents, "u32")
    subnormal = bitwise_left_shift(np.uint32(1 << 21), bitwise_and(wide, np.uint32(1)))
    normal = bitwise_left_shift(wide - np.uint32(1), np.uint32(23))
    return bitcast(where(less(wide, np.uint32(2)), subnormal, normal), "f32")

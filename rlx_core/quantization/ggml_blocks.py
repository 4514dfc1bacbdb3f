"""The block types of GGML, as GGUF files store them: 32 elements and one or two f16 scales.

Q4_0, Q5_0 and Q8_0 are symmetric: `value = code · d`. Q4_1 and Q5_1 have a minimum: `value = code · d + m`. The first half of a
block has the low halves of its bytes. Encoding rounds as GGML's own reference does, to the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.dtypes import f16, i8, u8
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_statistics import astype
from rlx_core.quantization.bits import flat, low_then_high, packed_low_then_high, shifted, with_high_bits
from rlx_core.system.records import frozen


def reciprocal(scale: np.ndarray) -> np.ndarray:
    """Return `1 / scale` in f32, and 0 where the scale is 0."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


@frozen
class Codes(Scheme):
    """Base class: codes of 4 or 5 bits, whose low bits are the halves of bytes, and f16 scales."""

    block: int | None = 32
    is_fixed: ClassVar[bool] = True
    bits: ClassVar[int]
    scales: ClassVar[tuple[str, ...]]

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        fifth = (SchemeField("qh", u8, (4,)),) if self.bits == 5 else ()
        return (*(SchemeField(name, f16) for name in self.scales), *fifth, SchemeField("qs", u8, (16,)))

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        """Return one code for each element, as `f32`; written in ops."""
        codes = low_then_high(fields["qs"])
        if self.bits == 5:
            codes = with_high_bits(codes, flat(shifted(fields["qh"], 1, axis=-1), 2), 4)
        return astype(codes, "f32")

    def fields_of_codes(self, codes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of integers; the inverse of `codes_of`."""
        codes = np.clip(codes, 0, 2**self.bits - 1).astype(np.uint8)
        low = {"qs": packed_low_then_high(codes & 15)}
        if self.bits == 4:
            return low
        return {"qh": np.packbits(codes >> 4, axis=-1, bitorder="little"), **low}


@frozen
class Symmetric(Codes):
    """Base class: `value = (code - middle) · d`; the value of the largest magnitude has code 0."""

    scales: ClassVar[tuple[str, ...]] = ("d",)

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return astype(fields["d"], "f32")[..., None] * (self.codes_of(fields) - np.float32(2 ** (self.bits - 1)))

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        values, middle = values.astype(np.float32), 2 ** (self.bits - 1)
        d = np.take_along_axis(values, np.abs(values).argmax(-1)[..., None], -1) / np.float32(-middle)
        codes = np.trunc(values * reciprocal(d) + np.float32(middle + 0.5))
        return {"d": d[..., 0].astype(np.float16), **self.fields_of_codes(codes)}


@frozen
class WithMinimum(Codes):
    """Base class: `value = code · d + m`; the smallest value has code 0, the largest the last."""

    scales: ClassVar[tuple[str, ...]] = ("d", "m")

    def decode(self, fields: Mapping[str, Any]) -> Any:
        scaled = astype(fields["d"], "f32")[..., None] * self.codes_of(fields)
        return scaled + astype(fields["m"], "f32")[..., None]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        values = values.astype(np.float32)
        least = values.min(-1, keepdims=True)
        d = (values.max(-1, keepdims=True) - least) / np.float32(2**self.bits - 1)
        codes = np.trunc((values - least) * reciprocal(d) + np.float32(0.5))
        scales = {"d": d[..., 0].astype(np.float16), "m": least[..., 0].astype(np.float16)}
        return {**scales, **self.fields_of_codes(codes)}


@frozen
class Q4_0(Symmetric):
    """4 bits, symmetric."""

    name: ClassVar[str] = "rlx.q4_0"
    ggml_id: ClassVar[int | None] = 2
    bits: ClassVar[int] = 4


@frozen
class Q5_0(Symmetric):
    """5 bits, symmetric."""

    name: ClassVar[str] = "rlx.q5_0"
    ggml_id: ClassVar[int | None] = 6
    bits: ClassVar[int] = 5


@frozen
class Q4_1(WithMinimum):
    """4 bits and a minimum."""

    name: ClassVar[str] = "rlx.q4_1"
    ggml_id: ClassVar[int | None] = 3
    bits: ClassVar[int] = 4


@frozen
class Q5_1(WithMinimum):
    """5 bits and a minimum."""

    name: ClassVar[str] = "rlx.q5_1"
    ggml_id: ClassVar[int | None] = 7
    bits: ClassVar[int] = 5


@frozen
class Q8_0(Scheme):
    """8 bits, symmetric: `value = code · d`."""

    block: int | None = 32
    is_fixed: ClassVar[bool] = True
    name: ClassVar[str] = "rlx.q8_0"
    ggml_id: ClassVar[int | None] = 8

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", i8, (32,)))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return astype(fields["qs"], "f32") * astype(fields["d"], "f32")[..., None]

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        values = values.astype(np.float32)
        d = np.abs(values).max(-1) / np.float32(127)
        scaled = values * reciprocal(d)[..., None]
        away = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves are rounded away from zero
        return {"d": d.astype(np.float16), "qs": away.astype(np.int8)}

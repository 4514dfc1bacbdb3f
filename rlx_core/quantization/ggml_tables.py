"""Block types of GGML whose codes are indices of a table, or digits in base three.

IQ4_NL and IQ4_XS have 16 levels that are denser around zero. TQ1_0 and TQ2_0 have the values -1, 0 and 1, of which TQ1_0 stores
five to a byte: the byte is the fraction of 256 whose digits in base three they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.dtypes import f16, u8, u16
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_search import take
from rlx_core.ops.array_shapes import reshape
from rlx_core.ops.array_statistics import astype
from rlx_core.ops.bitwise import bitwise_and, bitwise_right_shift
from rlx_core.ops.movement import concat
from rlx_core.quantization.bits import flat, low_then_high, packed, packed_low_then_high, pairs, with_high_bits
from rlx_core.quantization.ggml_superblocks import two_bits
from rlx_core.quantization.integer import divided
from rlx_core.system.records import frozen

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int64)
"""The levels of IQ4_NL and IQ4_XS."""

ROUNDS = 4
"""Alternations between the nearest levels and the least squares fit of a scale."""


def levels_of(codes: Any) -> Any:
    """Return the levels of codes, `f32`; written in ops."""
    return astype(take(LEVELS.astype(np.int8), astype(codes, "i32"), out_of_bounds="clip"), "f32")


def nearest_levels(values: np.ndarray) -> np.ndarray:
    """Return the codes of the levels that are nearest to values."""
    return np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, values)


def fitted_scale(groups: np.ndarray) -> np.ndarray:
    """Return scales of either sign such that `scale · level` is near the values of each group, `[..., groups, elements]`."""
    scale = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0] / LEVELS[0]
    for _ in range(ROUNDS):
        levels = LEVELS[nearest_levels(divided(groups, scale[..., None]))]
        scale = divided((levels * groups).sum(-1), (levels**2).sum(-1))
    return scale


@frozen
class Iq4Nl(Scheme):
    """4 bits: indices of 16 levels, with a scale for 32 elements."""

    block: int | None = 32
    is_fixed: ClassVar[bool] = True
    name: ClassVar[str] = "rlx.iq4_nl"
    ggml_id: ClassVar[int | None] = 20

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", u8, (16,)))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return astype(fields["d"], "f32")[..., None] * levels_of(low_then_high(fields["qs"]))

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        wide = values.astype(np.float64)
        d = fitted_scale(wide).astype(np.float16)
        return {"d": d, "qs": packed_low_then_high(nearest_levels(divided(wide, d[..., None])))}


@frozen
class Iq4Xs(Scheme):
    """4 bits: indices of 16 levels, in 8 groups with scales of 6 bits around 32."""

    block: int | None = 256
    is_fixed: ClassVar[bool] = True
    name: ClassVar[str] = "rlx.iq4_xs"
    ggml_id: ClassVar[int | None] = 23

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        scales = (SchemeField("d", f16), SchemeField("scales_h", u16), SchemeField("scales_l", u8, (4,)))
        return (*scales, SchemeField("qs", u8, (128,)))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        shifts = np.arange(0, 16, 2, dtype=np.uint16)
        high = astype(bitwise_and(bitwise_right_shift(fields["scales_h"][..., None], shifts), np.uint16(3)), "u8")
        scales = astype(with_high_bits(pairs(fields["scales_l"]), high, 4), "f32") - np.float32(32)
        factors = astype(fields["d"], "f32")[..., None] * scales
        codes = low_then_high(reshape(fields["qs"], (*fields["qs"].shape[:-1], 8, 16)))
        return flat(factors[..., None] * levels_of(codes), 2)

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        groups = values.astype(np.float64).reshape(*values.shape[:-1], 8, 32)
        scale = fitted_scale(groups)
        d = (np.take_along_axis(scale, np.abs(scale).argmax(-1)[..., None], -1)[..., 0] / -32).astype(np.float16)
        integers = np.clip(np.rint(divided(scale, d[..., None])), -32, 31).astype(np.int64)
        factors = d.astype(np.float64)[..., None] * integers
        codes = packed_low_then_high(nearest_levels(divided(groups, factors[..., None])))
        biased = integers + 32
        return {
            "d": d,
            "scales_h": np.bitwise_or.reduce((biased >> 4) << np.arange(0, 16, 2), axis=-1).astype(np.uint16),
            "scales_l": packed(np.moveaxis((biased & 15).reshape(*biased.shape[:-1], 4, 2), -1, -2), 4),
            "qs": codes.reshape(*codes.shape[:-2], 128),
        }


@frozen
class Ternary(Scheme):
    """Base class: `value = d · code`, codes -1, 0 and 1, 256 to a block."""

    block: int | None = 256
    is_fixed: ClassVar[bool] = True

    def coded(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scale of each block and its codes plus one."""
        d = np.abs(values.astype(np.float32)).max(-1)
        scaled = divided(values.astype(np.float64), d[..., None])
        return d.astype(np.float16), np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64) + 1


@frozen
class Tq1_0(Ternary):
    """Five codes to a byte, and four in each of the last four bytes."""

    name: ClassVar[str] = "rlx.tq1_0"
    ggml_id: ClassVar[int | None] = 34

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("qs", u8, (48,)), SchemeField("qh", u8, (4,)), SchemeField("d", f16))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        parts = ((fields["qs"][..., :32], 5), (fields["qs"][..., 32:], 5), (fields["qh"], 4))
        digits = concat([flat(ternary_digits(part, count), 2) for part, count in parts], axis=-1)
        return astype(fields["d"], "f32")[..., None] * (astype(digits, "f32") - np.float32(1))

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        d, codes = self.coded(values)
        first, second, last = np.split(codes, [160, 240], axis=-1)
        qs = [ternary_bytes(part.reshape(*part.shape[:-1], 5, -1)) for part in (first, second)]
        return {"qs": np.concatenate(qs, -1), "qh": ternary_bytes(last.reshape(*last.shape[:-1], 4, 4)), "d": d}


@frozen
class Tq2_0(Ternary):
    """2 bits to a code."""

    name: ClassVar[str] = "rlx.tq2_0"
    ggml_id: ClassVar[int | None] = 35

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("qs", u8, (64,)), SchemeField("d", f16))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        codes = flat(two_bits(fields["qs"]), 3)
        return astype(fields["d"], "f32")[..., None] * (astype(codes, "f32") - np.float32(1))

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        d, codes = self.coded(values)
        qs = packed(codes.reshape(*codes.shape[:-1], 2, 4, 32), 2)
        return {"qs": qs.reshape(*qs.shape[:-2], 64), "d": d}


def ternary_digits(codes: Any, count: int) -> Any:
    """Return the first digits in base three of bytes as fractions of 256, `u8[..., count, n]` from `u8[..., n]`.

    Multiplication by 3 to the n-th, modulo 256, removes n digits; the next one is the integer part of 3 times the remainder,
    over 256.
    """
    powers = (3 ** np.arange(count)).astype(np.uint8)[:, None]
    remainder = astype(codes[..., None, :] * powers, "u16")
    return astype(bitwise_right_shift(remainder * np.uint16(3), np.uint16(8)), "u8")


def ternary_bytes(digits: np.ndarray) -> np.ndarray:
    """Return bytes from digits in base three, `u8[..., n]` from `[..., count, n]`; `ternary_digits` is the inverse."""
    number = (digits * (3 ** np.arange(4, 4 - digits.shape[-2], -1))[:, None]).sum(-2)
    return ((number * 256 + 242) // 243).astype(np.uint8)

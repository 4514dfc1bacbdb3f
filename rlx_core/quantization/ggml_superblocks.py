"""The K-quants of GGML: blocks of 256 elements in groups of 16 or 32, whose scales are integers times one or two f16 numbers.

Q3_K and Q6_K are symmetric: `value = d · scale · code`. Q2_K, Q4_K and Q5_K have a minimum:
`value = d · scale · code - dmin · min`. The layouts are those of GGUF files. Encoding minimises the squared error of each group
by alternating between codes and a least squares fit of scale and minimum, then once more with the scales that can be represented.
Other writers search differently, so that their bytes differ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.dtypes import f16, f32, i8, i16, u8
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_shapes import reshape
from rlx_core.ops.array_statistics import astype
from rlx_core.ops.bitwise import bitwise_and, bitwise_right_shift
from rlx_core.quantization.bits import flat, joined, packed, shifted, with_high_bits
from rlx_core.quantization.integer import divided
from rlx_core.system.records import frozen

ROUNDS = 8
"""Alternations of the fit of a group; later ones change no code."""


@frozen
class GroupedScheme(Scheme):
    """Base class: blocks of 256 elements, in groups that have a scale, and a minimum unless the scheme is symmetric.

    Attributes:
        groups: Groups of a block.
        bits: Bits of a code.
        scale_range: The largest integer scale and minimum; a symmetric scheme has scales from `-largest - 1` on.
        is_symmetric: Whether codes are signed, around 0, and there are no minima.
    """

    block: int | None = 256
    is_fixed: ClassVar[bool] = True
    groups: ClassVar[int]
    bits: ClassVar[int]
    scale_range: ClassVar[int]
    is_symmetric: ClassVar[bool] = False

    @abstractmethod
    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the codes, `u8[..., groups, elements]`; those of a symmetric scheme are around half of their number."""

    @abstractmethod
    def scales_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the integer scales, `f32[..., groups]`."""

    def minima_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the integer minima, `u8[..., groups]`, of a scheme that has them."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of codes, `[..., groups, elements]`, and of integer scales and minima, `[..., groups]`."""

    def decode(self, fields: Mapping[str, Any]) -> Any:
        scale = astype(fields["d"], "f32")[..., None] * self.scales_of(fields)
        codes = astype(self.codes_of(fields), "f32")
        if self.is_symmetric:
            return flat(scale[..., None] * (codes - np.float32(2 ** (self.bits - 1))), 2)
        minimum = astype(fields["dmin"], "f32")[..., None] * astype(self.minima_of(fields), "f32")
        return flat(scale[..., None] * codes - minimum[..., None], 2)

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        grouped = values.astype(np.float64).reshape(*values.shape[:-1], self.groups, -1)
        lowest = -(2 ** (self.bits - 1)) if self.is_symmetric else 0
        highest = lowest + 2**self.bits - 1
        scale, minimum = (fitted_symmetric if self.is_symmetric else fitted)(grouped, lowest, highest)
        d, scales = self._integers(scale)
        dmin, minima = self._integers(minimum)
        factors = d.astype(np.float64)[..., None] * scales
        offsets = dmin.astype(np.float64)[..., None] * minima
        codes = np.clip(np.rint(divided(grouped + offsets[..., None], factors[..., None])), lowest, highest) - lowest
        fields = self.fields_of_codes(codes.astype(np.uint8), scales, minima)
        return {"d": d, **fields} if self.is_symmetric else {"d": d, "dmin": dmin, **fields}

    def _integers(self, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the f16 number of each block and the integers of its groups whose products are nearest to the factors."""
        if self.is_symmetric:
            extreme = np.take_along_axis(factors, np.abs(factors).argmax(-1)[..., None], -1)[..., 0]
            unit = (extreme / -(self.scale_range + 1)).astype(np.float16)
            return unit, np.clip(
                np.rint(divided(factors, unit[..., None])), -self.scale_range - 1, self.scale_range
            ).astype(np.int64)
        unit = (factors.max(-1) / self.scale_range).astype(np.float16)
        return unit, np.clip(np.rint(divided(factors, unit[..., None])), 0, self.scale_range).astype(np.int64)


def fitted(groups: np.ndarray, lowest: int, highest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scales and minima, neither negative, such that `scale · code - minimum` is near the values of each group."""
    least = np.minimum(groups.min(-1), 0)
    scale, minimum = (groups.max(-1) - least) / highest, -least
    for _ in range(ROUNDS):
        codes = np.clip(np.rint(divided(groups + minimum[..., None], scale[..., None])), lowest, highest)
        # Least squares of values on codes, with the intercept -minimum.
        n, c, v = groups.shape[-1], codes.sum(-1), groups.sum(-1)
        determinant = n * (codes**2).sum(-1) - c**2
        slope = divided(n * (codes * groups).sum(-1) - c * v, determinant)
        offset = (slope * c - v) / n
        is_better = (determinant > 0) & (slope > 0) & (offset >= 0)
        scale, minimum = np.where(is_better, slope, scale), np.where(is_better, offset, minimum)
    return scale, minimum


def fitted_symmetric(groups: np.ndarray, lowest: int, highest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scales of either sign such that `scale · code` is near the values of each group, and zeros for minima."""
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]
    scale = extreme / lowest
    for _ in range(ROUNDS):
        codes = np.clip(np.rint(divided(groups, scale[..., None])), lowest, highest)
        squares = (codes**2).sum(-1)
        scale = np.where(squares > 0, divided((codes * groups).sum(-1), squares), scale)
    return scale, np.zeros_like(scale)


def two_bits(codes: Any) -> Any:
    """Return 2-bit codes, `u8[..., 2, 4, n / 2]` from `u8[..., n]`: each half of the bytes gives four runs of elements."""
    return shifted(reshape(codes, (*codes.shape[:-1], 2, codes.shape[-1] // 2)), 2)


def packed_two_bits(codes: np.ndarray) -> np.ndarray:
    """Return the bytes of 2-bit codes of 256 elements; `two_bits` unpacks them."""
    return packed(codes.reshape(*codes.shape[:-2], 2, 4, 32), 2).reshape(*codes.shape[:-2], 64)


def in_groups(codes: Any, groups: int) -> Any:
    """Return the codes of 256 elements, `[..., groups, elements]`, from their last axes `[2, 4, 32]`."""
    return reshape(codes, (*codes.shape[:-3], groups, 256 // groups))


@frozen
class Q2_K(GroupedScheme):
    """2 bits: 16 groups with scales and minima of 4 bits."""

    name: ClassVar[str] = "rlx.q2_k"
    ggml_id: ClassVar[int | None] = 10
    groups: ClassVar[int] = 16
    bits: ClassVar[int] = 2
    scale_range: ClassVar[int] = 15

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        codes = (SchemeField("scales", u8, (16,)), SchemeField("qs", u8, (64,)))
        return (*codes, SchemeField("d", f16), SchemeField("dmin", f16))

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        return in_groups(two_bits(fields["qs"]), 16)

    def scales_of(self, fields: Mapping[str, Any]) -> Any:
        return astype(bitwise_and(fields["scales"], np.uint8(15)), "f32")

    def minima_of(self, fields: Mapping[str, Any]) -> Any:
        return bitwise_right_shift(fields["scales"], np.uint8(4))

    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        return {"scales": (scales | minima << 4).astype(np.uint8), "qs": packed_two_bits(codes)}


@frozen
class Q3_K(GroupedScheme):
    """3 bits, symmetric: 16 groups with scales of 6 bits; the third bits lie in a separate array."""

    name: ClassVar[str] = "rlx.q3_k"
    ggml_id: ClassVar[int | None] = 11
    groups: ClassVar[int] = 16
    bits: ClassVar[int] = 3
    scale_range: ClassVar[int] = 31
    is_symmetric: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        bits = (SchemeField("hmask", u8, (32,)), SchemeField("qs", u8, (64,)))
        return (*bits, SchemeField("scales", u8, (12,)), SchemeField("d", f16))

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        high = reshape(shifted(fields["hmask"], 1), (*fields["hmask"].shape[:-1], 2, 4, 32))
        return in_groups(with_high_bits(two_bits(fields["qs"]), high, 2), 16)

    def scales_of(self, fields: Mapping[str, Any]) -> Any:
        low = flat(shifted(fields["scales"][..., :8], 4), 2)
        high = flat(shifted(fields["scales"][..., 8:], 2), 2)
        return astype(with_high_bits(low, high, 4), "f32") - np.float32(32)

    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        biased = scales + 32
        low = packed((biased & 15).reshape(*biased.shape[:-1], 2, 8), 4)
        high = packed((biased >> 4).reshape(*biased.shape[:-1], 4, 4), 2)
        hmask = packed((codes >> 2).reshape(*codes.shape[:-2], 8, 32), 1)
        return {"hmask": hmask, "qs": packed_two_bits(codes & 3), "scales": np.concatenate([low, high], -1)}


@frozen
class Q4_K(GroupedScheme):
    """4 bits: 8 groups with scales and minima of 6 bits in 12 bytes."""

    name: ClassVar[str] = "rlx.q4_k"
    ggml_id: ClassVar[int | None] = 12
    groups: ClassVar[int] = 8
    bits: ClassVar[int] = 4
    scale_range: ClassVar[int] = 63

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        scales = (SchemeField("d", f16), SchemeField("dmin", f16), SchemeField("scales", u8, (12,)))
        return (*scales, SchemeField("qs", u8, (128,)))

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        # 32 bytes hold a group in their low halves and the next one in their high halves.
        codes = shifted(reshape(fields["qs"], (*fields["qs"].shape[:-1], 4, 32)), 4)
        return reshape(codes, (*codes.shape[:-3], 8, 32))

    def scales_of(self, fields: Mapping[str, Any]) -> Any:
        # Groups 0 to 3 have the low 6 bits of a byte each; groups 4 to 7 have 4 bits, and the high 2 bits of those bytes.
        first, last = fields["scales"][..., :4], bitwise_and(fields["scales"][..., 8:], np.uint8(15))
        return astype(self._six_bits(first, last), "f32")

    def minima_of(self, fields: Mapping[str, Any]) -> Any:
        return self._six_bits(fields["scales"][..., 4:8], bitwise_right_shift(fields["scales"][..., 8:], np.uint8(4)))

    @staticmethod
    def _six_bits(first: Any, last: Any) -> Any:
        high = bitwise_right_shift(first, np.uint8(6))
        return joined(bitwise_and(first, np.uint8(63)), with_high_bits(last, high, 4))

    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        first = [x[..., :4] | (x[..., 4:] >> 4) << 6 for x in (scales, minima)]
        last = (scales[..., 4:] & 15) | (minima[..., 4:] & 15) << 4
        low = packed((codes & 15).reshape(*codes.shape[:-2], 4, 2, 32), 4).reshape(*codes.shape[:-2], 128)
        return {"scales": np.concatenate([*first, last], -1).astype(np.uint8), "qs": low}


@frozen
class Q5_K(Q4_K):
    """5 bits: as Q4_K, with the fifth bits in a separate array."""

    name: ClassVar[str] = "rlx.q5_k"
    ggml_id: ClassVar[int | None] = 13
    bits: ClassVar[int] = 5

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        *scales, codes = Q4_K().fields
        return (*scales, SchemeField("qh", u8, (32,)), codes)

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        return with_high_bits(Q4_K.codes_of(self, fields), shifted(fields["qh"], 1), 4)

    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        return {**Q4_K.fields_of_codes(self, codes, scales, minima), "qh": packed(codes >> 4, 1)}


@frozen
class Q6_K(GroupedScheme):
    """6 bits, symmetric: 16 groups with scales of 8 bits."""

    name: ClassVar[str] = "rlx.q6_k"
    ggml_id: ClassVar[int | None] = 14
    groups: ClassVar[int] = 16
    bits: ClassVar[int] = 6
    scale_range: ClassVar[int] = 127
    is_symmetric: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        codes = (SchemeField("ql", u8, (128,)), SchemeField("qh", u8, (64,)))
        return (*codes, SchemeField("scales", i8, (16,)), SchemeField("d", f16))

    def codes_of(self, fields: Mapping[str, Any]) -> Any:
        low = shifted(reshape(fields["ql"], (*fields["ql"].shape[:-1], 2, 64)), 4)
        low = reshape(low, (*low.shape[:-3], 2, 4, 32))
        return in_groups(with_high_bits(low, two_bits(fields["qh"]), 4), 16)

    def scales_of(self, fields: Mapping[str, Any]) -> Any:
        return astype(fields["scales"], "f32")

    def fields_of_codes(self, codes: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> dict[str, np.ndarray]:
        low = packed((codes & 15).reshape(*codes.shape[:-2], 2, 2, 64), 4).reshape(*codes.shape[:-2], 128)
        return {"ql": low, "qh": packed_two_bits(codes >> 4), "scales": scales.astype(np.int8)}


@frozen
class Q8_K(Scheme):
    """8 bits, symmetric, with an f32 scale and the sums of 16 codes each, which decoding ignores; not stored in files."""

    block: int | None = 256
    is_fixed: ClassVar[bool] = True
    name: ClassVar[str] = "rlx.q8_k"
    ggml_id: ClassVar[int | None] = 15

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f32), SchemeField("qs", i8, (256,)), SchemeField("bsums", i16, (16,)))

    def decode(self, fields: Mapping[str, Any]) -> Any:
        return fields["d"][..., None] * astype(fields["qs"], "f32")

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        values = values.astype(np.float32)
        d = np.take_along_axis(values, np.abs(values).argmax(-1)[..., None], -1)[..., 0] / np.float32(-127)
        codes = np.clip(np.rint(divided(values, d[..., None])), -128, 127).astype(np.int8)
        sums = codes.astype(np.int16).reshape(*codes.shape[:-1], 16, 16).sum(-1, dtype=np.int16)
        return {"d": d, "qs": codes, "bsums": sums}

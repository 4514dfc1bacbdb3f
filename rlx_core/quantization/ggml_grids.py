"""Block types of GGML whose codes are vectors of 4 or 8 elements from a table: IQ1 to IQ3.

`value = factor · sign · grid[index]`, where the tables have magnitudes, and `value = factor · (grid[index] + delta)` in IQ1,
whose vectors are of -1, 0 and 1. The tables are those of the package `gguf`, which is imported when a scheme is used
(`rlx-core[gguf]`).
Encoding alternates between the nearest vectors and a least squares fit of each factor. GGML's own search weights elements by
their activations, and finds other codes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import PluginError
from rlx_core.ir.dtypes import f16, u8, u16, u32
from rlx_core.ir.schemes import Scheme, SchemeField
from rlx_core.ops.array_search import take
from rlx_core.ops.array_shapes import reshape
from rlx_core.ops.array_statistics import astype
from rlx_core.ops.bitwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor
from rlx_core.ops.floating import bitcast
from rlx_core.quantization.bits import flat, packed, packed_pairs, pairs, shifted
from rlx_core.quantization.integer import divided
from rlx_core.system.records import frozen

ROUNDS = 4
"""Alternations between the nearest vectors and the least squares fit of a factor."""

MAX_VECTORS = 1024
"""Vectors whose distances to all vectors of a table are computed at a time: they fit into a cache."""

DELTA = 0.125
"""The offset of all elements of a vector of IQ1, of either sign."""


@cache
def grid_of(name: str) -> np.ndarray:
    """Return the table of a type, `f32[vectors, elements]`.

    Raises:
        PluginError: The package gguf is not installed.
    """
    try:
        from gguf import quants  # here, because nothing else needs the package
    except ImportError as error:
        hint = "python -m pip install 'rlx-core[gguf]'"
        raise PluginError(f"rlx.{name}: its table is in the package gguf, which is not installed", hint=hint) from error
    table = getattr(quants, name.upper())
    table.init_grid()
    grid: np.ndarray = table.grid.reshape(table.grid_shape).astype(np.float32)
    grid.flags.writeable = False
    return grid


def nearest(grid: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the index of the vector of a table that is nearest to each of some others, `i64[...]` from `f64[..., elements]`.

    It has the largest `x · y - y · y / 2`. Distances are f32: of two that differ by less, either vector will do.
    """
    lines = np.append(vectors.reshape(-1, vectors.shape[-1]), np.ones((vectors[..., 0].size, 1)), -1).astype(np.float32)
    table = np.append(grid, -np.square(grid).sum(-1, keepdims=True) / 2, -1).T
    parts = [(lines[i : i + MAX_VECTORS] @ table).argmax(-1) for i in range(0, len(lines), MAX_VECTORS)]
    return np.concatenate(parts).reshape(vectors.shape[:-1])


def pieces(word: Any, width: int, count: int) -> Any:
    """Return the first `count` numbers of `width` bits in each integer, on a new last axis; written in ops."""
    dtype = word.dtype if isinstance(word.dtype, np.dtype) else word.dtype.numpy
    shifts = (np.arange(count) * width).astype(dtype)
    return bitwise_and(bitwise_right_shift(word[..., None], shifts), dtype.type(2**width - 1))


def joined_pieces(numbers: np.ndarray, width: int) -> np.ndarray:
    """Return integers of numbers of `width` bits along the last axis; `pieces` is the inverse."""
    return np.bitwise_or.reduce(numbers.astype(np.int64) << (width * np.arange(numbers.shape[-1])), axis=-1)


@frozen
class GridScheme(Scheme):
    """Base class: blocks of 256 elements, in groups that have a factor, which is an odd multiple of a unit.

    Attributes:
        groups: Groups of a block.
        steps: Number of factors; the i-th is `(2i + 1) · unit`.
    """

    block: int | None = 256
    is_fixed: ClassVar[bool] = True
    groups: ClassVar[int]
    steps: ClassVar[int] = 16

    @property
    def grid(self) -> np.ndarray:
        """The table of vectors, `f32[vectors, elements]`."""
        return grid_of(self.name.removeprefix("rlx."))

    @abstractmethod
    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the factors, `f32[..., groups]`; written in ops."""

    @abstractmethod
    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the indices of vectors, integers `[..., 256 / elements]`; written in ops."""

    def vectors_of(self, fields: Mapping[str, Any]) -> Any:
        """Return vectors of the table, `f32[..., groups, elements of a group]`; written in ops."""
        indices = self.indices_of(fields)
        vectors = take(self.grid, astype(indices, "i32"), axis=0, out_of_bounds="clip")
        return reshape(vectors, (*indices.shape[:-1], self.groups, 256 // self.groups))

    def integer_factors(self, factors: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the scale of each block, `f16[...]`, and the number of each factor; `unit` is the unit of a scale of 1."""
        d = (factors.max(-1) / ((2 * self.steps - 1) * unit)).astype(np.float16)
        numbers = np.rint((divided(factors, d.astype(np.float64)[..., None] * unit) - 1) / 2)
        return d, np.clip(numbers, 0, self.steps - 1).astype(np.int64)


@frozen
class SignedGrid(GridScheme):
    """Base class: a table of magnitudes, and signs.

    Attributes:
        unit: The smallest factor of a block whose scale is 1.
        has_even_signs: Whether 7 signs of each 8 are stored, and the number of negative ones is even.
    """

    unit: ClassVar[float] = 0.125
    has_even_signs: ClassVar[bool] = False

    @abstractmethod
    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        """Return the signs of eight elements in each byte, `u8[..., 32]`, 1 for negative ones; written in ops."""

    @abstractmethod
    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the fields of integers: the scales of blocks, the numbers of factors, the indices, and the signs in bytes."""

    def decode(self, fields: Mapping[str, Any]) -> Any:
        values = flat(self.factors_of(fields)[..., None] * self.vectors_of(fields), 2)
        signs = flat(shifted(self.signs_of(fields), 1, axis=-1), 2)
        return values * (np.float32(1) - np.float32(2) * astype(signs, "f32"))

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        grid, wide = self.grid.astype(np.float64), values.astype(np.float64)
        is_negative = wide < 0
        magnitudes = np.abs(wide)
        if self.has_even_signs:
            eights = is_negative.reshape(*wide.shape[:-1], -1, 8)
            smallest = magnitudes.reshape(eights.shape).argmin(-1)[..., None]
            is_odd = eights.sum(-1, keepdims=True) % 2 == 1
            flipped = np.take_along_axis(eights, smallest, -1) ^ is_odd
            np.put_along_axis(eights, smallest, flipped, -1)
            is_negative = eights.reshape(wide.shape)
            magnitudes = np.where(is_negative, -wide, wide)
        groups = magnitudes.reshape(*wide.shape[:-1], self.groups, -1)
        vectors = groups.reshape(*groups.shape[:-1], -1, grid.shape[-1])
        factors = groups.max(-1) / grid.max()
        for _ in range(ROUNDS):
            chosen = grid[nearest(grid, divided(vectors, factors[..., None, None]))].reshape(groups.shape)
            factors = np.maximum(divided((chosen * groups).sum(-1), np.square(chosen).sum(-1)), 0)
        d, numbers = self.integer_factors(factors, self.unit)
        represented = d.astype(np.float64)[..., None] * self.unit * (2 * numbers + 1)
        indices = nearest(grid, divided(vectors, represented[..., None, None]))
        signs = np.packbits(is_negative, axis=-1, bitorder="little")
        return self.fields_of_codes(d, numbers, indices.reshape(*d.shape, -1), signs)

    def factors_of_numbers(self, d: Any, numbers: Any) -> Any:
        """Return factors, `d · (number + 1/2) · 2 · unit`, in the order of GGML's operations; written in ops."""
        return astype(d, "f32")[..., None] * (np.float32(0.5) + astype(numbers, "f32")) * np.float32(2 * self.unit)


def with_eighth_sign(signs: Any) -> Any:
    """Return bytes of 8 signs, an even number of which is negative, from integers of 7; written in ops."""
    seven = astype(signs, "u8")
    parity = seven
    for shift in (4, 2, 1):
        parity = bitwise_xor(parity, bitwise_right_shift(parity, np.uint8(shift)))
    return bitwise_or(seven, bitwise_left_shift(parity, np.uint8(7)))


@frozen
class Iq2Xxs(SignedGrid):
    """2.06 bits: for 32 elements four indices of 8 bits, and a word of four times 7 signs and a factor of 4 bits."""

    name: ClassVar[str] = "rlx.iq2_xxs"
    ggml_id: ClassVar[int | None] = 16
    groups: ClassVar[int] = 8
    has_even_signs: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", u32, (8, 2)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        return self.factors_of_numbers(fields["d"], bitwise_right_shift(fields["qs"][..., 1], np.uint32(28)))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return flat(pieces(fields["qs"][..., 0], 8, 4), 2)

    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        return with_eighth_sign(flat(pieces(fields["qs"][..., 1], 7, 4), 2))

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        first = joined_pieces(indices.reshape(*d.shape, 8, 4), 8)
        second = joined_pieces((signs & 127).reshape(*d.shape, 8, 4), 7) | numbers << 28
        return {"d": d, "qs": np.stack([first, second], -1).astype(np.uint32)}


@frozen
class Iq2Xs(SignedGrid):
    """2.31 bits: for 8 elements an index of 9 bits and 7 signs, for 16 a factor of 4 bits."""

    name: ClassVar[str] = "rlx.iq2_xs"
    ggml_id: ClassVar[int | None] = 17
    groups: ClassVar[int] = 16
    has_even_signs: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", u16, (32,)), SchemeField("scales", u8, (8,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        return self.factors_of_numbers(fields["d"], pairs(fields["scales"]))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return bitwise_and(fields["qs"], np.uint16(511))

    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        return with_eighth_sign(bitwise_right_shift(fields["qs"], np.uint16(9)))

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        qs = (indices | (signs.astype(np.int64) & 127) << 9).astype(np.uint16)
        return {"d": d, "qs": qs, "scales": packed_pairs(numbers)}


@frozen
class Iq2S(SignedGrid):
    """2.56 bits: for 8 elements an index of 10 bits and 8 signs, for 16 a factor of 4 bits."""

    name: ClassVar[str] = "rlx.iq2_s"
    ggml_id: ClassVar[int | None] = 22
    groups: ClassVar[int] = 16

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        codes = (SchemeField("qs", u8, (32,)), SchemeField("signs", u8, (32,)), SchemeField("qh", u8, (8,)))
        return (SchemeField("d", f16), *codes, SchemeField("scales", u8, (8,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        return self.factors_of_numbers(fields["d"], pairs(fields["scales"]))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return with_high(fields["qs"], flat(shifted(fields["qh"], 2, axis=-1), 2))

    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        return fields["signs"]

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        high = np.moveaxis((indices >> 8).reshape(*d.shape, 8, 4), -1, -2)
        codes = {"qs": (indices & 255).astype(np.uint8), "signs": signs, "qh": packed(high, 2)}
        return {"d": d, **codes, "scales": packed_pairs(numbers)}


@frozen
class Iq3Xxs(SignedGrid):
    """3.06 bits: for 4 elements an index of 8 bits, for 32 a word of four times 7 signs and a factor of 4 bits."""

    name: ClassVar[str] = "rlx.iq3_xxs"
    ggml_id: ClassVar[int | None] = 18
    groups: ClassVar[int] = 8
    unit: ClassVar[float] = 0.25
    has_even_signs: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", u8, (64,)), SchemeField("scales", u32, (8,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        return self.factors_of_numbers(fields["d"], bitwise_right_shift(fields["scales"], np.uint32(28)))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return fields["qs"]

    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        return with_eighth_sign(flat(pieces(fields["scales"], 7, 4), 2))

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        words = joined_pieces((signs & 127).reshape(*d.shape, 8, 4), 7) | numbers << 28
        return {"d": d, "qs": indices.astype(np.uint8), "scales": words.astype(np.uint32)}


@frozen
class Iq3S(SignedGrid):
    """3.44 bits: for 4 elements an index of 9 bits and 4 signs, for 32 a factor of 4 bits."""

    name: ClassVar[str] = "rlx.iq3_s"
    ggml_id: ClassVar[int | None] = 21
    groups: ClassVar[int] = 8
    unit: ClassVar[float] = 1.0

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        codes = (SchemeField("qs", u8, (64,)), SchemeField("qh", u8, (8,)), SchemeField("signs", u8, (32,)))
        return (SchemeField("d", f16), *codes, SchemeField("scales", u8, (4,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        return odd_multiples(astype(fields["d"], "f32")[..., None], pairs(fields["scales"]))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return with_high(fields["qs"], flat(shifted(fields["qh"], 1, axis=-1), 2))

    def signs_of(self, fields: Mapping[str, Any]) -> Any:
        return fields["signs"]

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, signs: np.ndarray
    ) -> dict[str, np.ndarray]:
        qh = np.packbits((indices >> 8).astype(np.uint8), axis=-1, bitorder="little")
        codes = {"qs": (indices & 255).astype(np.uint8), "qh": qh, "signs": signs}
        return {"d": d, **codes, "scales": packed_pairs(numbers)}


@frozen
class ShiftedGrid(GridScheme):
    """Base class: a table of -1, 0 and 1, to whose vectors `DELTA` is added, or subtracted from those of negative parts.

    Attributes:
        parts: Parts of a block, each with one sign of `DELTA`.
    """

    steps: ClassVar[int] = 8
    parts: ClassVar[int]

    @abstractmethod
    def shifts_of(self, fields: Mapping[str, Any]) -> Any:
        """Return 1 for parts from which `DELTA` is subtracted, else 0, integers `[..., parts]`; written in ops."""

    @abstractmethod
    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, shifts: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the fields of integers: the scales of blocks, the numbers of factors, the indices, and the shifts."""

    def decode(self, fields: Mapping[str, Any]) -> Any:
        vectors, shifts = self.vectors_of(fields), astype(self.shifts_of(fields), "f32")
        delta = np.float32(DELTA) - np.float32(2 * DELTA) * shifts
        moved = reshape(vectors, (*shifts.shape, 256 // self.parts)) + delta[..., None]
        return flat(self.factors_of(fields)[..., None] * reshape(moved, vectors.shape), 2)

    def encode(self, values: np.ndarray) -> Mapping[str, np.ndarray]:
        wide = values.astype(np.float64)
        groups = wide.reshape(*wide.shape[:-1], self.groups, -1)
        factors = np.abs(groups).max(-1) / (1 + DELTA)
        for _ in range(ROUNDS):
            _, _, chosen = self._nearest(wide, factors)
            chosen = chosen.reshape(groups.shape)
            factors = np.maximum(divided((chosen * groups).sum(-1), np.square(chosen).sum(-1)), 0)
        d, numbers = self.integer_factors(factors, 1.0)
        indices, shifts, _ = self._nearest(wide, d.astype(np.float64)[..., None] * (2 * numbers + 1))
        return self.fields_of_codes(d, numbers, indices, shifts)

    def _nearest(self, values: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the indices, shifts and values over factors that are nearest to values, with the better sign for each part."""
        grid = self.grid.astype(np.float64)
        scaled = divided(values, np.repeat(factors, 256 // self.groups, axis=-1))
        vectors = scaled.reshape(*values.shape[:-1], self.parts, -1, 8)
        both = []
        for delta in (DELTA, -DELTA):
            indices = nearest(grid, vectors - delta)
            both.append((indices, grid[indices] + delta))
        errors = [np.square(vectors - chosen).sum((-1, -2)) for _, chosen in both]
        is_down = errors[1] < errors[0]
        indices = np.where(is_down[..., None], both[1][0], both[0][0])
        chosen = np.where(is_down[..., None, None], both[1][1], both[0][1])
        outer = values.shape[:-1]
        return indices.reshape(*outer, -1), is_down.astype(np.int64), chosen.reshape(values.shape)


def odd_multiples(d: Any, numbers: Any) -> Any:
    """Return `d · (2 · number + 1)`; written in ops."""
    return d * (np.float32(2) * astype(numbers, "f32") + np.float32(1))


def with_high(low: Any, high: Any) -> Any:
    """Return `low | high << 8` as `u16`, of `u8` arrays; written in ops."""
    return bitwise_or(astype(low, "u16"), bitwise_left_shift(astype(high, "u16"), np.uint16(8)))


@frozen
class Iq1S(ShiftedGrid):
    """1.56 bits: for 8 elements an index of 11 bits, for 32 a factor of 3 bits and the sign of the shift."""

    name: ClassVar[str] = "rlx.iq1_s"
    ggml_id: ClassVar[int | None] = 19
    groups: ClassVar[int] = 8
    parts: ClassVar[int] = 8

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("d", f16), SchemeField("qs", u8, (32,)), SchemeField("qh", u16, (8,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        numbers = bitwise_and(bitwise_right_shift(fields["qh"], np.uint16(12)), np.uint16(7))
        return odd_multiples(astype(fields["d"], "f32")[..., None], numbers)

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return with_high(fields["qs"], flat(pieces(fields["qh"], 3, 4), 2))

    def shifts_of(self, fields: Mapping[str, Any]) -> Any:
        return bitwise_right_shift(fields["qh"], np.uint16(15))

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, shifts: np.ndarray
    ) -> dict[str, np.ndarray]:
        qh = joined_pieces((indices >> 8).reshape(*d.shape, 8, 4), 3) | numbers << 12 | shifts << 15
        return {"d": d, "qs": (indices & 255).astype(np.uint8), "qh": qh.astype(np.uint16)}


@frozen
class Iq1M(ShiftedGrid):
    """1.75 bits: for 8 elements an index of 11 bits and the sign of the shift, for 16 a factor of 3 bits.

    The scale of a block is in the highest four bits of four words of factors.
    """

    name: ClassVar[str] = "rlx.iq1_m"
    ggml_id: ClassVar[int | None] = 29
    groups: ClassVar[int] = 16
    parts: ClassVar[int] = 32

    @property
    def grid(self) -> np.ndarray:
        return grid_of("iq1_s")

    @property
    def fields(self) -> tuple[SchemeField, ...]:
        return (SchemeField("qs", u8, (32,)), SchemeField("qh", u8, (16,)), SchemeField("scales", u16, (4,)))

    def factors_of(self, fields: Mapping[str, Any]) -> Any:
        words = fields["scales"]
        bits = bitwise_right_shift(words[..., 0], np.uint16(12))
        for i in (1, 2, 3):
            bits = bitwise_or(
                bits, bitwise_left_shift(bitwise_right_shift(words[..., i], np.uint16(12)), np.uint16(4 * i))
            )
        return odd_multiples(astype(bitcast(bits, "f16"), "f32")[..., None], flat(pieces(words, 3, 4), 2))

    def indices_of(self, fields: Mapping[str, Any]) -> Any:
        return with_high(fields["qs"], bitwise_and(pairs(fields["qh"]), np.uint8(7)))

    def shifts_of(self, fields: Mapping[str, Any]) -> Any:
        return bitwise_right_shift(pairs(fields["qh"]), np.uint8(3))

    def fields_of_codes(
        self, d: np.ndarray, numbers: np.ndarray, indices: np.ndarray, shifts: np.ndarray
    ) -> dict[str, np.ndarray]:
        nibbles = np.right_shift(d.view(np.uint16)[..., None].astype(np.int64), 4 * np.arange(4)) & 15
        scales = joined_pieces(numbers.reshape(*d.shape, 4, 4), 3) | nibbles << 12
        qh = packed_pairs(indices >> 8 | shifts << 3)
        return {"qs": (indices & 255).astype(np.uint8), "qh": qh, "scales": scales.astype(np.uint16)}

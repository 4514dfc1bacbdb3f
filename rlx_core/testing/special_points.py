"""Points at which the modes of a program are compared: combinations of special values of each dtype, and ordinary points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from rlx_core.ir.dtypes import DType

ORDINARY: Final = 1000
"""Ordinary points, drawn over sixteen binary orders of magnitude."""

MAX_COMBINATIONS: Final = 2048
"""Maximum number of combinations of special values; a random subset is tried if there are more."""

_RANGE_ENDS: Final = (88.7, 88.8, -87.5, -103.9, 709.7, 709.8, -745.2, 1000.0, -1000.0)
"""Points at which exponentials of f32 and f64 overflow and underflow."""


@cache
def special_values(dtype: DType) -> np.ndarray:
    """Return NaN, infinities, zeros, limits, subnormals and the ends of ranges; of a complex dtype in both parts."""
    numpy = dtype.numpy
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        integer = np.iinfo(numpy)
        common = [n for n in (-7, -2, -1, 0, 1, 2, 3, 7, 31, 63) if n >= integer.min]
        return np.array([integer.min, integer.min + 1, *common, integer.max - 1, integer.max], numpy)
    if dtype.is_complex:
        parts = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, 1e-30, 88.8, -1000.0, 1000.0])
        re, im = np.meshgrid(parts, parts)
        result = np.empty(re.size, numpy)
        result.real, result.imag = re.ravel(), im.ravel()
        return result
    limits: Any = ml_dtypes.finfo(numpy)  # type: ignore[no-untyped-call]
    top, least, tiny = (float(x) for x in (limits.max, limits.smallest_subnormal, limits.tiny))
    positive = [0.0, 0.5, 1.0, 2.0, 3.0, 100.0, top, tiny, tiny / 2, least, 5 * least, np.inf]
    with np.errstate(all="ignore"):
        return np.array([np.nan, *positive, *(-x for x in positive), *_RANGE_ENDS]).astype(numpy)


def points(dtypes: Sequence[DType], rng: np.random.Generator) -> list[np.ndarray]:
    """Return an array of points for each operand: combinations of special values, then ordinary points."""
    special = [special_values(d) for d in dtypes]
    count = int(np.prod([len(s) for s in special]))
    chosen = np.arange(count) if count <= MAX_COMBINATIONS else rng.integers(0, count, MAX_COMBINATIONS)
    places = np.unravel_index(chosen, [len(s) for s in special])
    return [np.concatenate([s[i], ordinary(rng, d)]) for s, i, d in zip(special, places, dtypes, strict=True)]


def ordinary(rng: np.random.Generator, dtype: DType) -> np.ndarray:
    """Return points within the range of usual arguments."""
    if dtype.kind == "bool":
        return rng.random(ORDINARY) < 0.5
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return rng.integers(max(limits.min, -50), min(limits.max, 50), ORDINARY).astype(dtype.numpy)
    if dtype.is_complex:
        parts = 3 * rng.standard_normal((2, ORDINARY))
        return (parts[0] + 1j * parts[1]).astype(dtype.numpy)
    scale = np.exp2(rng.integers(-8, 8, ORDINARY))
    return (rng.standard_normal(ORDINARY) * scale).astype(dtype.numpy)


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where two arrays of one dtype have the same bits; a NaN is equal to every NaN."""
    if a.dtype.kind == "c":
        re, im = (
            same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y)) for x, y in ((a.real, b.real), (a.imag, b.imag))
        )
        return re & im
    if a.dtype.kind not in "fV":  # ml_dtypes' floats have kind V
        return a == b
    bits = f"u{a.dtype.itemsize}"
    both_nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return both_nan | (np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits))

"""Histograms of activations whose bounds grow by powers of two, and the ranges that follow from them."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from attrs import evolve

from rlx_core.passes.static_int8 import STEPS, OperandRange
from rlx_core.system.records import frozen

BINS: Final = 1 << 14
"""Bins of a histogram; half of them are for negative numbers."""

ENTROPY_BINS: Final = 2048
"""The most bins of absolute values that `entropy_threshold` is applied to, as in TensorRT."""

TINY: Final = float(np.finfo(np.float32).tiny)
"""The smallest half of a bound."""


@frozen(eq=False, slots=False)
class Histogram:
    """The counts of an activation in bins of equal width over `[-bound, bound)`.

    Bounds are powers of two, so that the bins of a histogram are unions of bins of those with smaller bounds: adding two loses no
    value, and depends on their order in no bit.

    Attributes:
        low, high: The smallest and the largest value.
        bound: A power of two, larger than the absolute values of both.
        counts: i64 `[BINS]`.
    """

    low: float
    high: float
    bound: float
    counts: np.ndarray

    def widened(self, bound: float) -> Histogram:
        """Return the histogram with another bound, a power of two that is not smaller."""
        counts = self.counts
        for _ in range(round(np.log2(bound / self.bound))):
            counts = np.pad(counts.reshape(-1, 2).sum(1), BINS // 4)
        return evolve(self, bound=bound, counts=counts)

    def __add__(self, other: Histogram) -> Histogram:
        bound = max(self.bound, other.bound)
        counts = self.widened(bound).counts + other.widened(bound).counts
        return Histogram(min(self.low, other.low), max(self.high, other.high), bound, counts)

    @property
    def width(self) -> float:
        """The width of a bin."""
        return 2 * self.bound / BINS

    @cached_property
    def edges(self) -> np.ndarray:
        """The edges of the bins, f64 `[BINS + 1]`."""
        return (np.arange(BINS + 1) - BINS // 2) * self.width

    @cached_property
    def shares(self) -> np.ndarray:
        """The fraction of the values below each edge, f64 `[BINS + 1]`."""
        return np.concatenate([[0.0], np.cumsum(self.counts) / self.counts.sum()])

    def clipped_to(self, low: float, high: float) -> OperandRange:
        """Return the part of the observed range within bounds, and the fraction of the values outside, interpolated in bins."""
        below = 0.0 if low <= self.low else float(np.interp(low, self.edges, self.shares))
        above = 0.0 if high >= self.high else 1 - float(np.interp(high, self.edges, self.shares))
        return OperandRange(max(low, self.low), min(high, self.high), max(below, 0.0) + max(above, 0.0))

    def percentile_range(self, percentile: float) -> OperandRange:
        """Return the range that has a percentage of the values and equal fractions of them on both sides."""
        tail = (1 - percentile / 100) / 2
        if not tail:
            return self.clipped_to(self.low, self.high)
        low, high = np.interp([tail, 1 - tail], self.shares, self.edges)
        return self.clipped_to(min(float(low), 0.0), max(float(high), 0.0))

    def entropy_range(self) -> OperandRange:
        """Return the observed range within `[-t, t]`, with the t of `entropy_threshold` for the absolute values.

        The first bin counts as many values as the second one: zeros, of which activations have many, are exact in codes.
        """
        below, above = np.split(self.counts, 2)
        counts = below[::-1] + above
        used = int(np.flatnonzero(counts)[-1]) + 1
        group = -(-used // ENTROPY_BINS)
        counts = np.pad(counts[:used], (0, -used % group)).reshape(-1, group).sum(1)
        counts[0] = counts[min(1, len(counts) - 1)]
        width = group * self.width
        shorter = max(0.0, min(-self.low, self.high))
        threshold = entropy_threshold(counts, round(shorter / width)) * width
        return self.clipped_to(-threshold, threshold)


def entropy_threshold(counts: np.ndarray, shorter: int) -> int:
    """Return the number of bins after which values are clipped, so that codes lose the least information.

    For each number of bins i from 128 on, P is the distribution of the values in the first i bins, with those beyond in the last
    of these that has values. Q is the distribution of the values in the first i bins after rounding: the bins are divided into
    `levels_of(i, shorter)` groups of equal size, and the values of a group are distributed evenly over those of its bins that
    have values. The result is the i with the smallest divergence `Σ P·log(P/Q)`; the smallest of several.

    Args:
        counts: Numbers of absolute values in bins of equal width from 0 on, i64 `[n]`; the last one is not 0.
        shorter: The bins up to the largest absolute value on the side of 0 where that is smaller.

    Source:
        Migacz 2017, "8-bit inference with TensorRT", GPU Technology Conference, where ranges are symmetric, and values beyond are
        in bin i; the divergence is infinite if it had none, so that one value beyond 16 times the others was not clipped.
    """
    best, result = np.inf, len(counts)
    total, within = float(counts.sum()), np.cumsum(counts)
    for i in range((STEPS + 1) // 2, len(counts) + 1):
        outside = total - within[i - 1]
        has_values = counts[:i] > 0
        if not within[i - 1]:
            continue
        levels = levels_of(i, shorter)
        p = counts[:i].astype(np.float64)
        edges = np.arange(levels + 1) * i // levels
        group = np.add.reduceat(p, edges[:-1]) / np.maximum(np.add.reduceat(has_values.astype(np.int64), edges[:-1]), 1)
        q = np.repeat(group, np.diff(edges))[has_values] / within[i - 1]
        p = p[has_values]
        p[-1] += outside
        p /= total
        divergence = float(p @ np.log(p / q))
        if divergence < best:
            best, result = divergence, i
    return result


def levels_of(bins: int, shorter: int) -> int:
    """Return the codes of absolute values below a threshold: 128 if the range is symmetric, 256 if it is one-sided, and not more
    than bins."""
    return min(bins, round((STEPS + 1) * bins / (bins + min(bins, shorter))))

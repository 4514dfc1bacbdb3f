"""Histograms of activations: sums of them, percentiles, and the threshold of the smallest divergence against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from same_numbers import RNG, same_numbers  # noqa: F401  # the fixture

from rlx_core.quantization.histograms import BINS, TINY, Histogram, entropy_threshold, levels_of


def histogram(values: np.ndarray) -> Histogram:
    """The histogram of some numbers by NumPy, with the bound that its definition states."""
    low, high = float(values.min()), float(values.max())
    bound = 2.0 ** (np.floor(np.log2(max(-low, high, TINY))) + 1)
    return Histogram(low, high, bound, np.histogram(values, BINS, (-bound, bound))[0])


def test_the_sum_of_histograms_is_that_of_all_values() -> None:
    small, large = RNG.standard_normal(1000) / 50, RNG.standard_normal(700) * 9
    one, other = histogram(small), histogram(large)
    for total in (one + other, other + one):
        expected = histogram(np.concatenate([small, large]))
        assert (total.low, total.high, total.bound) == (expected.low, expected.high, expected.bound)
        np.testing.assert_array_equal(total.counts, expected.counts)


@pytest.mark.parametrize("percentile", [60, 99, 99.9, 100])
def test_a_percentile_leaves_equal_fractions_on_both_sides(percentile: float) -> None:
    values = RNG.standard_normal(200_000)
    found = histogram(values).percentile_range(percentile)
    tail = (100 - percentile) / 2
    # A bin is 0.001 wide; the values next to the percentile 99.95 are up to 0.003 apart.
    np.testing.assert_allclose([found.low, found.high], np.percentile(values, [tail, 100 - tail]), atol=4e-3)
    outside = np.mean((values < found.low) | (values > found.high))
    assert abs(found.clipped - outside) < 1e-4
    assert abs(outside - (1 - percentile / 100)) < 1e-4


@pytest.mark.parametrize("name", ["percentile", "entropy"])
def test_ranges_of_one_sided_and_of_constant_values_contain_zero(name: str) -> None:
    for values in (np.zeros(9), np.full(9, 3.0), np.full(9, -3.0), np.abs(RNG.standard_normal(999)) + 2):
        each = histogram(values)
        found = each.percentile_range(99) if name == "percentile" else each.entropy_range()
        assert found.low <= 0 <= found.high
        assert min(each.low, 0) <= found.low
        assert found.high <= max(each.high, 0)


def divergence(counts: np.ndarray, levels: int, i: int) -> float:
    """The divergence for a threshold after bin i, by its definition."""
    p = [float(c) for c in counts[:i]]
    q = [0.0] * i
    for level in range(levels):
        group = range(level * i // levels, (level + 1) * i // levels)
        nonzero = [k for k in group if counts[k]]
        for k in nonzero:
            q[k] = sum(counts[j] for j in group) / len(nonzero)
    if not any(p):
        return np.inf
    p[max(k for k in range(i) if p[k])] += float(sum(counts[i:]))
    total, kept = sum(p), sum(q)
    return sum(a / total * np.log((a / total) / (b / kept)) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("seed", range(6))
def test_the_entropy_threshold_has_the_smallest_divergence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bins, shorter = 320, int(rng.choice([0, 40, 200, 320]))
    values = np.abs(rng.standard_normal(int(rng.integers(200, 30_000))))
    values[: seed % 4] *= 9
    counts = np.histogram(values, bins, (0, values.max()))[0]
    all_of = {i: divergence(counts, levels_of(i, shorter), i) for i in range(128, bins + 1)}
    found = entropy_threshold(counts, shorter)
    assert all_of[found] <= min(all_of.values()) + 1e-12


def test_a_side_has_the_codes_of_its_part_of_the_range() -> None:
    assert [levels_of(1000, shorter) for shorter in (0, 1000, 2000, 250)] == [256, 128, 128, 205]
    assert levels_of(130, 0) == 130


def test_few_bins_are_not_clipped() -> None:
    assert entropy_threshold(np.array([5, 0, 1]), 0) == 3


def test_the_entropy_range_clips_a_rare_outlier_and_keeps_the_others() -> None:
    values = np.concatenate([RNG.standard_normal(50_000), [40.0]])
    found = histogram(values).entropy_range()
    assert 2.5 < found.high < 8
    assert found.low >= values.min()
    assert found.clipped < 0.01


def test_zeros_do_not_move_the_entropy_range() -> None:
    """The zeros of a relu have their own code: however many there are, the range of the others is the same."""
    values = np.abs(RNG.standard_normal(50_000))
    few, many = (histogram(np.concatenate([values, np.zeros(n)])).entropy_range() for n in (0, 500_000))
    assert few.high == many.high > 3

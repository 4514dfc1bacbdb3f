"""Candidates are timed in turn, and another one than the default is selected only beyond the spread."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlx_core.testing.fake_clock import FakeClock
from rlx_core.tuning.clock import (
    MIN_ROUNDS,
    ROUNDS,
    HostClock,
    Timing,
    decided,
    measured,
)
from rlx_core.tuning.problem import Candidate

DEFAULT, OTHER, SLOW = Candidate("default"), Candidate("other"), Candidate("slow")


def nothing() -> None:
    return None


def test_candidates_are_interleaved_in_a_rotating_order() -> None:
    clock = FakeClock({}, other=1e-3)
    measured({DEFAULT: nothing, OTHER: nothing, SLOW: nothing}, clock)
    warm, rounds = clock.order[:4], clock.order[4:]
    assert warm == ["default", "other", "slow", "default"]
    assert [rounds[i : i + 3] for i in (0, 3, 6, 9)] == [
        ["default", "other", "slow"],
        ["other", "slow", "default"],
        ["slow", "default", "other"],
        ["default", "other", "slow"],
    ]
    assert len(rounds) == 3 * ROUNDS


def test_short_runs_are_repeated_and_times_are_of_one_run() -> None:
    counts: list[int] = []

    class Counting(FakeClock):
        def seconds(self, candidate, run, count):  # type: ignore[no-untyped-def]
            counts.append(count)
            return super().seconds(candidate, run, count)

    timings = measured({DEFAULT: nothing, OTHER: nothing}, Counting({}, other=1e-4))
    assert counts[:3] == [1, 1, 1]
    assert {*counts[3:]} == {10}
    assert timings[DEFAULT].median == pytest.approx(1e-4)


def test_a_candidate_that_is_slower_in_every_round_is_dropped_early() -> None:
    clock = FakeClock({"slow": [3e-3], "other": [1e-3]}, other=2e-3)
    timings = measured({DEFAULT: nothing, OTHER: nothing, SLOW: nothing}, clock)
    assert timings[SLOW].rounds == MIN_ROUNDS
    assert timings[DEFAULT].rounds == timings[OTHER].rounds == ROUNDS


def test_rounds_end_when_only_the_default_is_left() -> None:
    clock = FakeClock({"default": [1e-3]}, other=2e-3)
    timings = measured({DEFAULT: nothing, OTHER: nothing}, clock)
    assert {timing.rounds for timing in timings.values()} == {MIN_ROUNDS}


def test_a_timing_is_the_median_and_the_interquartile_range() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (timing.median, timing.spread, timing.rounds) == (3.0, 2.0, 5)


@pytest.mark.parametrize(
    ("default", "other", "name"),
    [
        ((10.0, 1.0), (7.0, 1.0), "other"),
        ((10.0, 1.0), (8.5, 1.0), "default"),  # within the two spreads
        ((10.0, 0.0), (9.9, 0.0), "default"),  # less than the minimum gain
        ((10.0, 0.0), (11.0, 0.0), "default"),
        ((10.0, 0.0), (10.0, 0.0), "default"),
    ],
)
def test_the_default_is_kept_unless_the_gain_exceeds_the_spreads(
    default: Sequence[float], other: Sequence[float], name: str
) -> None:
    timings = {DEFAULT: Timing(default[0], default[1], 9), OTHER: Timing(other[0], other[1], 9)}
    assert decided(timings).name == name


def test_noise_keeps_the_default() -> None:
    """The medians differ by a third, and the samples of both overlap."""
    noise = {"default": [3e-3, 3e-3, 1e-3, 3e-3, 5e-3, 2e-3] * 3, "other": [2e-3, 1e-3, 4e-3, 2e-3, 5e-3, 1e-3] * 3}
    timings = measured({DEFAULT: nothing, OTHER: nothing}, FakeClock(noise))
    assert timings[OTHER].median < timings[DEFAULT].median
    assert decided(timings) == DEFAULT


def test_the_clock_of_the_host_runs_as_often_as_requested() -> None:
    calls: list[int] = []
    assert HostClock().seconds(DEFAULT, lambda: calls.append(1), 7) >= 0
    assert len(calls) == 7

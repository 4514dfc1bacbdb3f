"""Timing of candidates: interleaved rounds, medians and spreads, and a decision only beyond the spread.

Candidates run in turn, each once per round, so that a change of the processor's clock or of the load of the machine affects
all of them. The order rotates from round to round, so that none always follows the same one. After `MIN_ROUNDS` rounds,
candidates that were slower in every round than the best one in any are not timed further.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Final, Protocol

from rlx_core.system.records import frozen
from rlx_core.tuning.problem import Candidate

Run = Callable[[], object]
"""Runs a candidate once, and returns when it has ended or, on a device, when it is submitted."""

ROUNDS: Final = 15
"""Timed rounds."""

MIN_ROUNDS: Final = 5
"""Rounds before a candidate may be dropped."""

SAMPLE_S: Final = 1e-3
"""Seconds of a sample: runs that are shorter are repeated, so that the resolution of the clock and its cost are negligible."""

MAX_RUNS: Final = 1000
"""Runs of a sample, at most."""

MIN_GAIN: Final = 0.02
"""Relative gain below which the default is kept, whatever the spread."""


class Clock(Protocol):
    """A source of times: the host's clock, or the events of a device."""

    def seconds(self, candidate: Candidate, run: Run, count: int) -> float:
        """Run a candidate `count` times, and return the seconds that all runs took together."""


@frozen
class HostClock:
    """The performance counter of the host."""

    def seconds(self, candidate: Candidate, run: Run, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return time.perf_counter() - start


@frozen
class Timing:
    """Samples of one candidate, in seconds per run.

    Attributes:
        median: The median.
        spread: The interquartile range.
        rounds: Number of samples.
    """

    median: float
    spread: float
    rounds: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """The statistics of at least two samples."""
        first, _, third = quantiles(samples, n=4, method="inclusive")
        return cls(median(samples), third - first, len(samples))


def measured(runs: Mapping[Candidate, Run], clock: Clock | None = None) -> dict[Candidate, Timing]:
    """Return the timings of candidates, whose runs are interleaved.

    Args:
        runs: A run of each candidate, the default first.
        clock: The clock; by default the host's.
    """
    clock = clock or HostClock()
    default = next(iter(runs))
    for candidate, run in runs.items():  # pages, caches and threads are as in later runs
        clock.seconds(candidate, run, 1)
    once = clock.seconds(default, runs[default], 1)
    count = max(1, min(MAX_RUNS, round(SAMPLE_S / once))) if once > 0 else MAX_RUNS
    samples: dict[Candidate, list[float]] = {candidate: [] for candidate in runs}
    active = list(runs)
    for number in range(ROUNDS):
        if len(active) == 1:
            break
        first = number % len(active)
        for candidate in (*active[first:], *active[:first]):
            samples[candidate].append(clock.seconds(candidate, runs[candidate], count) / count)
        if number + 1 >= MIN_ROUNDS:
            best = min(active, key=lambda each: median(samples[each]))
            limit = max(samples[best])
            active = [each for each in active if each in (default, best) or min(samples[each]) <= limit]
    return {candidate: Timing.of(values) for candidate, values in samples.items() if values}


def decided(timings: Mapping[Candidate, Timing]) -> Candidate:
    """Return the fastest candidate if its advantage over the default, the first one, exceeds both spreads; else the default."""
    default = next(iter(timings))
    best = min(timings, key=lambda each: timings[each].median)
    ours, theirs = timings[best], timings[default]
    margin = max(ours.spread + theirs.spread, MIN_GAIN * theirs.median)
    return best if theirs.median - ours.median > margin else default

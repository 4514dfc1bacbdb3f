"""A clock for tests: the time of each candidate is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field

from rlx_core.system.records import define
from rlx_core.tuning.clock import Run
from rlx_core.tuning.problem import Candidate


@define
class FakeClock:
    """A clock by which a run takes a given number of seconds, whatever it takes.

    Attributes:
        times: Candidate name → seconds of a run in each round; the last one holds for all later rounds.
        other: Seconds of a run of candidates that are not listed.
        order: The candidates in the order in which they were timed, a warm-up included.
    """

    times: Mapping[str, Sequence[float]]
    other: float = 2e-3
    order: list[str] = field(factory=list)

    def seconds(self, candidate: Candidate, run: Run, count: int) -> float:
        run()
        rounds = self.order.count(candidate.name)
        self.order.append(candidate.name)
        times = self.times.get(candidate.name, (self.other,))
        return times[min(rounds, len(times) - 1)] * count

"""Selection of a schedule: from the store, else by measurement if that is enabled, else the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlx_core.system.records import frozen
from rlx_core.tuning.clock import Clock, Run, decided, measured
from rlx_core.tuning.problem import Candidate, TuningProblem
from rlx_core.tuning.store import ChoiceStore, StoredChoice

Origin = Literal["default", "stored", "measured"]


@frozen
class TunedProblem:
    """The schedule of one problem in a program.

    Attributes:
        problem: The problem's line.
        candidate: The schedule.
        default: The name of the default.
        origin: The reason for the schedule: no choice was available ("default"), or where the choice comes from.
        choice: The choice with its times, if there is one.
    """

    problem: str
    candidate: Candidate
    default: str
    origin: Origin
    choice: StoredChoice | None = None

    def __str__(self) -> str:
        name = self.candidate.name
        chosen = f"{name} (the default)" if name == self.default else f"{name}, default {self.default}"
        times = "" if self.choice is None else f": {self.choice.times}"
        return f"{self.problem}: {chosen}; {'not measured' if self.origin == 'default' else self.origin}{times}"

    def to_json(self) -> dict[str, Any]:
        """The choice, with stable keys."""
        row = {
            "problem": self.problem,
            "candidate": self.candidate.name,
            "default": self.default,
            "origin": self.origin,
        }
        if self.choice is None:
            return row
        return row | {"median_us": self.choice.median_us, "default_us": self.choice.default_us}


@frozen
class Tuner:
    """Selects schedules on one machine.

    Attributes:
        machine: The machine's printed one-line form.
        store: The store of choices.
        measures: Whether problems without a stored choice are measured.
        clock: The clock for measurements; by default the host's.
    """

    machine: str
    store: ChoiceStore
    measures: bool = False
    clock: Clock | None = None

    @property
    def state(self) -> str:
        """The digest of everything that determines the schedules: part of the keys of caches."""
        return self.store.digest(self.machine)

    def selected(self, problem: TuningProblem, prepare: Callable[[Candidate], Run] | None = None) -> TunedProblem:
        """Return the schedule of a problem.

        Args:
            prepare: Compiles a candidate and returns a run of it; without it nothing is measured.
        """
        default = problem.default.name
        stored = self.store.get(problem.line, self.machine, problem.version)
        candidate = None if stored is None else problem.candidate(stored.candidate)
        if candidate is not None:
            return TunedProblem(problem.line, candidate, default, "stored", stored)
        if not self.measures or prepare is None or len(problem.candidates) == 1:
            return TunedProblem(problem.line, problem.default, default, "default")
        timings = measured({each: prepare(each) for each in problem.candidates}, self.clock)
        best = decided(timings)
        ours, theirs = timings[best], timings[problem.default]
        choice = StoredChoice(
            problem.line, self.machine, problem.version, best.name, default,
            _us(ours.median), _us(ours.spread), _us(theirs.median), _us(theirs.spread), ours.rounds,
        )  # fmt: skip
        self.store.put(choice)
        return TunedProblem(problem.line, best, default, "measured", choice)


def _us(seconds: float) -> float:
    """Microseconds with the resolution of the file."""
    return round(seconds * 1e6, 3)

"""Problems and their candidate schedules, as data."""

from __future__ import annotations

from attrs import field

from rlx_core.system.records import frozen


@frozen
class Candidate:
    """One schedule of a problem.

    Attributes:
        name: Its name in reports and in the store: unique among the candidates of a problem, and the same in all processes.
        parameters: Names and values, which the owner of the schedule interprets.
    """

    name: str
    parameters: tuple[tuple[str, int], ...] = ()


@frozen
class TuningProblem:
    """A computation with several schedules.

    Attributes:
        line: Its printed one-line form; equal lines are equal problems.
        version: The version of the candidates, which the owner of the schedule changes with their code: choices of another
            version do not apply.
        candidates: The schedules; the first is the default, which the owner's model selects.
    """

    line: str
    version: str
    candidates: tuple[Candidate, ...] = field()

    @candidates.validator
    def _check_candidates(self, attribute: object, value: tuple[Candidate, ...]) -> None:
        names = [candidate.name for candidate in value]
        assert names, f"{self.line}: a problem has a default"
        assert len({*names}) == len(names), f"{self.line}: two candidates have one name: {', '.join(names)}"

    @property
    def default(self) -> Candidate:
        """The schedule that the owner's model selects."""
        return self.candidates[0]

    def candidate(self, name: str) -> Candidate | None:
        """Return the candidate of a name, or `None`."""
        return next((each for each in self.candidates if each.name == name), None)

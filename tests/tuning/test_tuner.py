"""A schedule comes from the store, else from a measurement where that is enabled, else it is the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlx_core.testing.fake_clock import FakeClock
from rlx_core.tuning.clock import Run
from rlx_core.tuning.problem import Candidate, TuningProblem
from rlx_core.tuning.store import ChoiceStore
from rlx_core.tuning.tuner import Tuner

MODEL, SMALL, LARGE = Candidate("model"), Candidate("small", (("tile", 2),)), Candidate("large", (("tile", 64),))
PROBLEM = TuningProblem("product [8] @ [8]", "products 1", (MODEL, SMALL, LARGE))
PREFERS_SMALL = {"model": [2e-3], "small": [1e-3], "large": [3e-3]}


@pytest.fixture
def store(tmp_path: Path) -> ChoiceStore:
    return ChoiceStore(tmp_path / "tuning" / "choices.jsonl")


def prepared(candidate: Candidate) -> Run:
    return lambda: candidate


def unexpected(candidate: Candidate) -> Run:
    raise AssertionError(f"{candidate} is compiled")


def test_a_problem_without_a_choice_has_its_default(store: ChoiceStore) -> None:
    result = Tuner("a machine", store).selected(PROBLEM, unexpected)
    assert (result.candidate, result.origin) == (MODEL, "default")
    assert str(result) == "product [8] @ [8]: model (the default); not measured"
    assert store.choices() == []


def test_a_measured_choice_is_stored_and_measured_once(store: ChoiceStore) -> None:
    tuner = Tuner("a machine", store, measures=True, clock=FakeClock(PREFERS_SMALL))
    first = tuner.selected(PROBLEM, prepared)
    assert (first.candidate, first.origin) == (SMALL, "measured")
    assert str(first) == ("product [8] @ [8]: small, default model; measured: 1000.0 ± 0.0 us, default 2000.0 ± 0.0 us")
    assert first.to_json() == {
        "problem": "product [8] @ [8]",
        "candidate": "small",
        "default": "model",
        "origin": "measured",
        "median_us": 1000.0,
        "default_us": 2000.0,
    }
    second = Tuner("a machine", ChoiceStore(store.path), measures=True).selected(PROBLEM, unexpected)
    assert (second.candidate, second.origin) == (SMALL, "stored")


def test_stored_choices_are_used_where_nothing_is_measured(store: ChoiceStore) -> None:
    Tuner("a machine", store, measures=True, clock=FakeClock(PREFERS_SMALL)).selected(PROBLEM, prepared)
    assert Tuner("a machine", store).selected(PROBLEM).candidate == SMALL
    assert Tuner("another machine", store).selected(PROBLEM).candidate == MODEL


@pytest.mark.parametrize(
    "other",
    [
        TuningProblem(PROBLEM.line, "products 2", PROBLEM.candidates),
        TuningProblem("another", PROBLEM.version, PROBLEM.candidates),
        TuningProblem(PROBLEM.line, PROBLEM.version, (MODEL, LARGE)),  # no longer a candidate
    ],
    ids=["version", "problem", "candidates"],
)
def test_a_choice_of_another_problem_does_not_apply(store: ChoiceStore, other: TuningProblem) -> None:
    Tuner("a machine", store, measures=True, clock=FakeClock(PREFERS_SMALL)).selected(PROBLEM, prepared)
    assert Tuner("a machine", store).selected(other).origin == "default"


def test_a_problem_with_one_schedule_is_not_measured(store: ChoiceStore) -> None:
    problem = TuningProblem("a small one", "products 1", (MODEL,))
    assert Tuner("a machine", store, measures=True).selected(problem, unexpected).origin == "default"


def test_the_state_changes_with_a_choice(store: ChoiceStore) -> None:
    tuner = Tuner("a machine", store, measures=True, clock=FakeClock(PREFERS_SMALL))
    before = tuner.state
    tuner.selected(PROBLEM, prepared)
    assert tuner.state != before
    assert Tuner("another machine", store).state == before


def test_two_candidates_of_one_name_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="two candidates have one name: a, a"):
        TuningProblem("a problem", "1", (Candidate("a"), Candidate("a", (("tile", 2),))))

"""Which cases of parametrised tests a run has, and which tests it leaves to another target of the Makefile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attrs import frozen

from tests.conftest import chosen

ROOT = Path(__file__).parents[1]


@frozen
class Item:
    """What is asked of a test's case."""

    nodeid: str

    def get_closest_marker(self, name: str) -> None:
        return None


def test_some_cases_are_the_same_in_every_run_and_others_with_another_seed() -> None:
    cases = [Item(f"test[{i}]") for i in range(100)]
    picked = {seed: chosen(cases, 4, seed) for seed in range(5)}  # type: ignore[arg-type]
    assert all(len(some) == 4 for some in picked.values())
    assert picked == {seed: chosen(cases, 4, seed) for seed in range(5)}  # type: ignore[arg-type]
    assert len({*picked[0], *picked[1], *picked[2], *picked[3], *picked[4]}) > 12


@pytest.mark.slow
def test_what_is_slow_of_a_folder_may_be_left_to_another_run() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "tests/test_conftest.py", "--quick-alone", "tests"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "test_some_cases" in ran.stdout, ran.stdout + ran.stderr
    assert "test_what_is_slow" not in ran.stdout

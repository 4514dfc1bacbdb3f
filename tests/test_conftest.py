"""Which cases of parametrised tests a run has, and which tests it leaves to another target of the Makefile."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from attrs import frozen

from tests.conftest import chosen, in_part, part

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


def test_a_part_is_one_of_so_many() -> None:
    assert part("2/5") == (2, 5)
    for text in ("", "2", "0/5", "6/5", "1/0", "a/b", "-1/5"):
        with pytest.raises(ArgumentTypeError, match="is not I/N"):
            part(text)


def test_all_parts_together_are_every_test_once() -> None:
    items = [Item(f"test[{i}]") for i in range(20)]
    parts = [in_part(items, (number, 3)) for number in (1, 2, 3)]  # type: ignore[arg-type]
    assert sorted(item.nodeid for found in parts for item in found) == sorted(item.nodeid for item in items)
    assert [len(found) for found in parts] == [7, 7, 6]


@pytest.mark.slow
def test_what_is_slow_of_a_folder_may_be_left_to_another_run() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "tests/test_conftest.py", "--quick-alone", "tests"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "test_some_cases" in ran.stdout, ran.stdout + ran.stderr
    assert "test_what_is_slow" not in ran.stdout

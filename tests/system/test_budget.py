"""Budgets: what was found, the limit, and the option that raises it, for each of them."""

from __future__ import annotations

import threading
import time

import pytest

from rlx_core.errors import BudgetError
from rlx_core.system.budget import Budget, CountedWork, current_work, working


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def refused_slowly() -> None:
    spin(0.02)
    raise KeyError


@pytest.mark.parametrize(
    ("option", "exceed"),
    [
        ("nodes", lambda work: work.expect_nodes(11, "graph main")),
        ("folded", lambda work: work.fold(11, "folding exp")),
        ("read", lambda work: work.read(11, "a.safetensors")),
        ("parameters", lambda work: work.expect_parameters(11, "parameters")),
    ],
)
def test_the_error_has_what_was_found_the_limit_and_the_option(option, exceed):
    with working(Budget(**{option: 10}), "compiling main") as work, pytest.raises(BudgetError) as caught:
        exceed(work)
    facts = {fact.label: str(fact.value) for fact in caught.value.facts}
    assert facts[f"budget.{option}"] == "10"
    assert facts["found"].startswith("11")
    assert f'config={{"budget.{option}": ...}}' in caught.value.hint
    assert caught.value.message.startswith("compiling main: ")


def test_as_much_as_the_limit_is_allowed():
    with working(Budget(nodes=10, folded=10, read=10, parameters=10), "compiling main") as work:
        work.expect_nodes(10, "graph main")
        work.expect_parameters(10, "parameters")
        for _ in range(2):
            work.fold(5, "folding exp")
            work.read(5, "a.safetensors")
        with pytest.raises(BudgetError, match=r"b.safetensors: the files have more than 10 bytes"):
            work.read(1, "b.safetensors")


def test_a_step_has_a_time_of_its_own():
    work = CountedWork(Budget(seconds=0.05), "compiling main")
    with (
        pytest.raises(BudgetError, match=r"the pass rlx.slow takes longer than 0.05 s"),
        work.step("the pass rlx.slow"),
    ):
        spin(0.06)
    with work.step("the pass rlx.next"):
        work.expect_time()


def test_waiting_takes_no_time_of_the_processor():
    with working(Budget(seconds=0.05), "compiling main") as work, work.step("the pass rlx.waits"):
        time.sleep(0.08)


def test_an_error_within_a_step_is_kept():
    work = CountedWork(Budget(seconds=0.01), "compiling main")
    with pytest.raises(KeyError), work.step("the pass rlx.slow"):
        refused_slowly()


def test_work_belongs_to_its_block_and_thread():
    seen = []
    with working(Budget(), "compiling main") as outer:
        with working(Budget(), "compiling inner") as inner:
            assert current_work() is inner
        assert current_work() is outer
        thread = threading.Thread(target=lambda: seen.append(current_work()))
        thread.start()
        thread.join()
    assert seen == [None]
    assert current_work() is None

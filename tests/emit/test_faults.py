"""What goes wrong in a step on a device: it names the index, the step and the user's line, when somebody waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError

TABLE = np.arange(6, dtype=np.float32).reshape(2, 3)
BAD = np.array([0, 5])


def rows(table: Any, at: Any) -> Any:
    return rlx.take(table, at, axis=0)  # the line that errors name


def test_with_results_on_the_host_the_call_raises(bench: Any) -> None:
    f = bench.jit(rows)
    with pytest.raises(IndexRangeError, match="index 5 is outside an axis of 2 elements") as caught:
        f(TABLE, BAD)
    assert [fact.value for fact in caught.value.facts if fact.label == "place"] == ["point 3 of the kernel"]
    assert "test_faults.py" in str(caught.value)
    np.testing.assert_array_equal(f(TABLE, np.array([1, 0])), TABLE[::-1])


@pytest.mark.parametrize(("at", "says"), [(([7], [0]), "7 is .* axis of 2 "), (([0], [-9]), "-9 is .* axis of 3 ")])
def test_each_index_of_a_kernel_is_named_with_its_own_axis(bench: Any, at: Any, says: str) -> None:
    def both(t: Any, rows: Any, columns: Any) -> Any:
        return rlx.take(t[:, 0], rows) * rlx.take(t[0], columns)

    f = bench.jit(both)
    with pytest.raises(IndexRangeError, match=says):
        f(TABLE, *map(np.array, at))
    assert len(f.executables[0].lir.steps) == 1, "both are one kernel"


def test_with_results_on_the_device_whoever_waits_is_told_every_time(bench: Any) -> None:
    found = bench.jit(rows)(bench.put(TABLE), BAD)
    for _ in range(2):
        with pytest.raises(IndexRangeError, match="index 5"):
            found.to_host()


def test_what_was_computed_from_a_failed_run_has_its_error(bench: Any) -> None:
    found = bench.jit(rows)(bench.put(TABLE), BAD)
    later = bench.jit(lambda x: x + 1)(bench.jit(lambda x: x * 2)(found))
    with pytest.raises(IndexRangeError, match="index 5"):
        np.asarray(later)
    with pytest.raises(IndexRangeError, match="index 5"):
        bench.jit(lambda x: x + 1, outputs="host")(found)


def test_runs_after_a_failed_one_are_right(bench: Any) -> None:
    f, table = bench.jit(rows), bench.put(TABLE)
    bad, good = f(table, BAD), f(table, np.array([1, 1]))
    np.testing.assert_array_equal(good.to_host(), TABLE[[1, 1]])
    with pytest.raises(IndexRangeError, match="index 5"):
        bad.to_host()


def test_a_chain_of_runs_that_may_fail_is_settled_now_and_then(bench: Any) -> None:
    """A training loop that never reads anything must not remember every run."""
    f = bench.jit(lambda t, at: rlx.take(t, at, axis=0) * 1.0)
    x, at = bench.put(TABLE), bench.put(np.array([1, 0]))
    for _ in range(200):
        x = f(x, at)
    assert x.run is None or x.run.depth <= 65
    np.testing.assert_array_equal(x.to_host(), TABLE)

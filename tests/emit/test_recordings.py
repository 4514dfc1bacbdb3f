"""Launches that are recorded: when, what is submitted instead of them, and that they do what the launches would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.emit.recordings import MAX_RECORDINGS, Recordings
from rlx_core.testing.fake_device import FakeDriver

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def steps(x: Any) -> Any:
    """Several launches: each sum is a loop of its own."""
    y = x - rlx.sum(x, axis=0)
    return y / rlx.sum(y * y, axis=1, keepdims=True)


def right(x: np.ndarray) -> np.ndarray:
    y = x - x.sum(0)
    return y / (y * y).sum(1, keepdims=True)


@pytest.fixture
def there(bench: Any) -> Any:
    """An array on a device that records."""
    x = bench.put(X)
    bench.driver.can_record = True
    return x


def test_a_run_on_the_same_memory_as_one_before_is_one_launch(bench: Any) -> None:
    bench.put(X)
    bench.driver.can_record = True
    f = bench.jit(steps)
    first, second, third = (bench.during(lambda: f(X)) for _ in range(3))
    assert first["launch"] > 1
    assert "record" not in first
    assert second["record"] == 1
    assert "record" not in third
    assert third["recording"] == 1
    assert "launch" not in third
    np.testing.assert_allclose(f(2 * X), right(2 * X), rtol=1e-6)


def test_outputs_that_come_back_to_a_few_places_are_recorded_for_each(bench: Any, there: Any) -> None:
    """Whoever keeps the result of the last run while the next one goes on has results at two places in turn."""
    f, x = bench.jit(steps), there
    for _ in range(6):
        x = f(x)
    asked = bench.during(lambda: f(x))
    assert "recording" in asked
    wanted = X
    for _ in range(6):
        wanted = right(wanted)
    np.testing.assert_allclose(x.to_host(), wanted, rtol=1e-4)


def test_other_memory_is_not_what_was_recorded(bench: Any, there: Any) -> None:
    f = bench.jit(steps)
    for _ in range(3):
        f(there).to_host()
    other = bench.put(3 * X)
    np.testing.assert_allclose(f(other).to_host(), right(3 * X), rtol=1e-6)
    np.testing.assert_allclose(f(there).to_host(), right(X), rtol=1e-6)


def test_parameters_that_are_bound_anew_are_recorded_anew(bench: Any) -> None:
    w = np.full(4, 2, np.float32)
    f = bench.compile(lambda w, x: steps(x * w), w, rlx.spec("f32[3, 4]"))
    f(X)
    bench.driver.can_record = True
    for _ in range(3):
        np.testing.assert_allclose(f(X), right(2 * X), rtol=1e-6)
    f.rebind(w=5 * w)
    np.testing.assert_allclose(f(X), right(10 * X), rtol=1e-6)


def test_only_so_many_places_are_remembered() -> None:
    known = Recordings(FakeDriver(can_record=True))
    for place in range(2 * MAX_RECORDINGS):
        assert known.of((place,), ()) == ()
    assert len(known.known) == MAX_RECORDINGS

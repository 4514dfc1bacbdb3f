"""A device whose memory is short: what can be let go is, runs wait for one another, and what does not fit says by how much."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.errors import OutOfMemoryError
from rlx_core.testing.fake_device import FACTS

X = np.arange(256, dtype=np.float32).reshape(4, 64)


def steps(x: Any) -> Any:
    return rlx.exp(x - rlx.max(x)) + rlx.sum(x, axis=0), rlx.sum(x, axis=0)


@pytest.fixture
def small(bench: Any) -> Callable[[int], Any]:
    """A host whose device has so many bytes."""
    return lambda nbytes: type(bench)(facts=evolve(FACTS, memory_nbytes=nbytes, largest_buffer=nbytes))


def needed(bench: Any, call: Callable[[Any], Any]) -> int:
    """The bytes that a device holds after a program has run there."""
    call(bench)
    return int(bench.driver.allocations)


def test_idle_frames_of_every_program_make_room_for_another_one(small: Any) -> None:
    one = needed(small(1 << 20), lambda bench: bench.jit(steps)(X))
    bench = small(2 * one - 256)
    programs = [bench.jit(lambda x, k=k: tuple(y * k for y in steps(x))) for k in range(2, 6)]
    for _ in range(2):
        for k, program in zip(range(2, 6), programs, strict=True):
            np.testing.assert_allclose(program(X)[1], k * X.sum(0), rtol=1e-6)
    assert bench.driver.count("free") > 0


def test_eight_threads_share_memory_for_one(small: Any) -> None:
    bench = small(needed(small(1 << 20), lambda bench: bench.jit(steps)(X)))
    f, wrong = bench.jit(steps), []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)
        try:
            wrong.extend(seed for _ in range(10) if not np.array_equal(f(x)[1], x.sum(0)))
        except OutOfMemoryError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_never_fits_is_said_with_the_plan_and_the_next_program_runs(small: Any) -> None:
    bench = small(8192)
    f = bench.jit(steps)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match=r"fake:0: .* of \d+ bytes cannot be allocated") as caught:
            f(np.ones((16, 64), np.float32))
        (plan,) = [fact.value for fact in caught.value.facts if fact.label == "plan of steps"]
        assert "inputs 4096" in str(plan)
        assert "outputs 4352" in str(plan)
    del caught
    np.testing.assert_array_equal(bench.jit(lambda x: x + 1)(X), X + 1)


def test_arrays_are_put_where_idle_frames_were(small: Any) -> None:
    bench = small(8192)
    bench.jit(steps)(X)
    held = bench.driver.allocations
    arrays = [bench.put(X) for _ in range(8)]
    assert bench.driver.allocations == 8192 > held
    with pytest.raises(OutOfMemoryError, match="an array of 1024 bytes cannot be allocated"):
        bench.put(X)
    np.testing.assert_array_equal(arrays[7].to_host(), X)


def test_a_donated_state_is_whole_after_a_run_that_did_not_fit(small: Any) -> None:
    """Memory is asked for before the first step, so a run that fails for want of it has changed nothing."""
    bench = small(16 << 10)
    step = bench.jit(lambda state, x: (state + rlx.sum(x), rlx.exp(x)), donate="state")
    state, _ = step(bench.put(np.ones(64, np.float32)), X)
    filling: list[Any] = []
    with suppress(OutOfMemoryError):
        while True:
            filling.append(bench.put(np.zeros(64, np.float32)))
    del filling[:6]
    with pytest.raises(OutOfMemoryError):
        step(state, X)
    np.testing.assert_array_equal(state.to_host(), np.full(64, 1 + X.sum()))
    del filling
    np.testing.assert_array_equal(step(state, X)[0].to_host(), np.full(64, 1 + 2 * X.sum()))

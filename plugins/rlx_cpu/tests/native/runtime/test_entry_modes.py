"""Who runs a program: its caller alone, with whoever is awake, or with all threads."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pytest
from callers import side_by_side
from entries import entry_of, jitted, long_program, mode_of, opened, program

import rlx_core as rlx
from rlx_cpu.native.machine import MACHINE
from rlx_cpu.native.runtime import pool
from rlx_cpu.native.runtime.code import LINE, WORKERS
from rlx_cpu.native.runtime.entry_words import Mode
from rlx_cpu.native.work import takes_longer

pytestmark = pytest.mark.usefixtures("without_poison")

RNG = np.random.default_rng(0)


@pytest.mark.medium
def test_small_programs_run_alone_and_large_ones_with_all_threads() -> None:
    config = {"options": {"cpu.threads": 2}}
    modes = []
    for size in (4, 128, 512):
        fast = jitted(lambda x: rlx.tanh(x @ x), config=config)
        fast(np.ones((size, size), "f4"))
        modes.append(mode_of(program(fast)))
    assert modes[0] is Mode.TINY
    assert modes[-1] is Mode.SHARED
    alone = jitted(lambda x: rlx.tanh(x @ x), config={"options": {"cpu.threads": 1}})
    alone(np.ones((512, 512), "f4"))
    assert mode_of(program(alone)) is Mode.ALONE


SPIN = 2_000_000
"""Two seconds of waiting: a worker that is awake stays so during a test, and not much longer."""


def middling(x: Any) -> Any:
    """Some 15 µs for 16 K elements: worth the help of who is awake, and nobody's waking."""
    return rlx.tanh(x) * 2.0 + rlx.exp(x)


def runs_begun(threads: int, spin: int) -> int:
    return int(pool.control_for(threads, spin)[0])


@pytest.mark.medium
def test_who_is_awake_helps_with_a_program_in_between() -> None:
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": SPIN}})
    fast(x)
    assert mode_of(program(fast)) is Mode.AWAKE
    entry = entry_of(fast)
    alone = jitted(middling, config={"options": {"cpu.threads": 1}})(x)
    threads = pool.pool_for(2, SPIN)
    threads._wake(1)
    begun = runs_begun(2, SPIN)
    for n in range(1, 1001):
        (found,) = entry(x)
        assert runs_begun(2, SPIN) == begun + n
        np.testing.assert_array_equal(found, alone)


def test_nobody_is_woken_for_a_program_in_between() -> None:
    spin = 1
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": spin}})
    fast(x)
    entry = entry_of(fast)
    pool.pool_for(2, spin)
    parked = pool.control_for(2, spin)[(WORKERS + LINE) // 8 :]
    deadline = time.monotonic() + 30
    while not parked[0] and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = runs_begun(2, spin)
    entry(x)
    assert runs_begun(2, spin) == begun
    assert parked[0] == 1


def test_a_pool_in_use_is_left_alone_by_a_program_in_between() -> None:
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": SPIN}})
    fast(x)
    entry = entry_of(fast)
    threads = pool.pool_for(2, SPIN)
    threads._wake(1)
    control = threads._control.ctypes.data
    assert pool.runtime().take(control)
    begun = runs_begun(2, SPIN)
    entry(x)
    assert not pool.runtime().take(control), "whoever did not get the pool has not given it away"
    pool.runtime().leave(control)
    assert runs_begun(2, SPIN) == begun


@pytest.mark.medium
def test_programs_of_all_lengths_share_one_pool_from_many_threads() -> None:
    config = {"options": {"cpu.threads": 2, "cpu.spin": 50}}
    long, short = jitted(long_program, config=config), jitted(middling, config=config)
    square, line = RNG.standard_normal((256, 256)).astype("f4"), RNG.standard_normal(16384).astype("f4")
    long_wanted, short_wanted = np.copy(opened(long, square)(square)), np.copy(opened(short, line)(line))

    def calls(run: Any, x: np.ndarray, wanted: np.ndarray) -> bool:
        return all(np.array_equal(run(x), wanted) for _ in range(100))

    both = [partial(calls, long, square, long_wanted), partial(calls, short, line, short_wanted)]
    assert all(side_by_side(*both * 3))


@pytest.mark.medium
def test_no_more_steps_are_looked_at_than_it_takes_to_know() -> None:
    fast = jitted(lambda x: rlx.tanh(x @ x) @ x)
    fast(np.ones((512, 512), "f4"))
    planned = program(fast)
    steps = ((step, planned.compiled.native.steps[i].emitted) for i, step in enumerate(planned.lir.steps))
    assert takes_longer(steps, 1.0, MACHINE.speed)
    assert next(steps, None) is not None

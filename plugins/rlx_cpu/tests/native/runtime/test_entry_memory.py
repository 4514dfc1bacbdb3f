"""What calls by an entry hold and leave behind: references, results, memory, the arena."""

from __future__ import annotations

import gc
import os
import sys
import weakref

import numpy as np
import pytest
from entries import W, X, entry_of, jitted, opened, program, step

import rlx_core as rlx
from rlx_cpu.native.llvm.background import drain

pytestmark = pytest.mark.usefixtures("without_poison")


@pytest.mark.slow
def test_reference_counts_are_what_they_were() -> None:
    fast = opened(jitted(step, donate="p"), np.ones(8, "f4"), np.ones(8, "f4"))
    exp = opened(jitted(lambda x: (rlx.exp(x), x)), X)
    p, g = np.ones(8, "f4"), np.zeros(8, "f4")
    objects = (p, g, X, np.dtype("f4"), np.ndarray, NotImplemented, fast, exp, exp.executables[0].entry_cell.entry)
    drain()  # a compilation of an earlier test holds dtypes
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    calls = 100_000
    for _ in range(calls):
        fast(p, g)
        exp(X)
        exp.executables[0].entry_cell.entry(1)
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    # Other threads of the test process count too: they hold and release dtypes and `NotImplemented`. A leak is one a call.
    assert all(abs(a - b) < calls / 1000 for a, b in zip(after, before, strict=True)), (before, after)


def test_results_are_freed_when_dropped_and_live_when_kept() -> None:
    fast = opened(jitted(lambda x: (rlx.exp(x), x * 2.0)), X)
    first, second = fast(X)
    gone = weakref.ref(first)
    del first
    assert gone() is None
    np.testing.assert_array_equal(second, X * 2)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read as Linux tells it")
def test_calls_leave_no_memory_behind() -> None:
    fast = opened(jitted(lambda x: rlx.exp(x)), np.ones(16384, "f4"))
    x = np.ones(16384, "f4")

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(1000):
        fast(x)
    before = resident()
    for _ in range(5000):  # 320 MB of results
        fast(x)
    assert resident() - before < 16 << 20


@pytest.mark.slow
def test_an_entry_keeps_what_it_needs_and_no_more() -> None:
    fast = jitted(lambda x: rlx.exp(x) @ W)
    expected = np.copy(fast(X))
    entry = entry_of(fast)
    arena = weakref.ref(program(fast).frames)
    del fast
    gc.collect()
    np.testing.assert_array_equal(entry(X)[0], expected)
    del entry
    gc.collect()
    assert arena() is None

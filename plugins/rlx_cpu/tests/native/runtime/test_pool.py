"""Parts that threads claim: each is done once, steps wait for one another, and nobody waits for a thread that does not come."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, KERNEL, address, counting
from rlx_cpu.native.llvm.isa import host_isa
from rlx_cpu.native.llvm.jit import JitCode, compile_module
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.llvm.simd import index, pointer_at
from rlx_cpu.native.runtime import pool
from rlx_cpu.native.runtime.code import RECORD_WORDS
from rlx_cpu.native.runtime.pool import ThreadPool


@cache
def code() -> JitCode:
    """`count` adds one to the counter of its part; `total` stores the sum of the first 64 counters behind them."""
    module = new_module("steps")
    function = ir.Function(module, KERNEL, "count")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    counters = pointer_at(b, function.args[0], 0)
    b.atomic_rmw("add", address(b, counters, b.mul(function.args[1], index(8))), index(1), "monotonic")
    b.ret_void()
    function = ir.Function(module, KERNEL, "total")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    counters = pointer_at(b, function.args[0], 0)
    total = b.alloca(I64)
    b.store(index(0), total, align=8)
    with counting(b, 0, 64) as i:
        one = b.load(address(b, counters, b.mul(i, index(8))), typ=I64, align=8)
        b.store(b.add(b.load(total, typ=I64, align=8), one), total, align=8)
    b.store(b.load(total, typ=I64, align=8), address(b, counters, 8 * 64), align=8)
    b.ret_void()
    isa = host_isa()
    assert isa is not None
    return compile_module(module, isa)


class Job:
    """Steps over one array of counters: each is its function's name, its parts and whether all meet after it."""

    def __init__(self, *steps: tuple[str, int, bool]) -> None:
        self.counters = np.zeros(65, np.int64)
        self.table = np.array([self.counters.ctypes.data], np.int64)
        self.words = np.array([(code().address(name), 0, parts, meets) for name, parts, meets in steps], np.int64)

    def run(self, on: ThreadPool, record: Any = None) -> None:
        place = 0 if record is None else record.ctypes.data
        on.run(self.words.ctypes.data, len(self.words), self.table.ctypes.data, place)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_every_part_is_done_once_and_the_next_step_sees_it(size: int, parts: int) -> None:
    """Five threads on fewer processors are often late, so that others have claimed their parts."""
    threads = pool.pool_for(size, 50)
    job = Job(("count", parts, True), ("total", 1, True))
    for n in range(1, 301):
        job.run(threads)
        assert job.counters[:parts].tolist() == [n] * parts
        assert job.counters[64] == n * parts


def test_steps_without_a_barrier_in_between_are_done_by_one_thread_in_order() -> None:
    job = Job(("count", 1, False), ("total", 0, False), ("count", 0, True), ("count", 2, True))
    for n in range(1, 101):
        job.run(pool.pool_for(2, 50))
        assert job.counters[:2].tolist() == [3 * n, n]
        assert job.counters[64] == 3 * n - 2 + n - 1


def test_a_worker_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.threading.Thread, "start", lambda self: None)
    job = Job(("count", 64, True), ("count", 2, True), ("total", 1, True))
    job.run(ThreadPool(2, 50))
    assert job.counters[64] == 66


def test_a_run_of_more_steps_than_ever_before_has_room() -> None:
    job = Job(*[("count", 2, True)] * 1000)
    job.run(ThreadPool(2, 50))
    assert job.counters[:2].tolist() == [1000, 1000]


def test_a_record_says_when_each_thread_that_took_part_began_and_ended() -> None:
    job = Job(("count", 64, True), ("count", 1, True))
    record = np.zeros((2, 2, RECORD_WORDS), np.int64)
    job.run(pool.pool_for(2, 50), record)

    begun, done, met = (record[:, :, i] for i in range(3))
    assert (done[:, 1] > 0).sum() == 1, "one part has one thread"
    took_part = done > 0
    assert (begun[took_part] <= done[took_part]).all()
    assert (done[took_part] <= met[took_part]).all()
    assert done[:, 0].max() <= met[0, 0], "the caller goes on when all parts are done"

"""Threads that run a program's steps together: they meet at barriers in native code, spin for a while, then park.

Workers are Python threads that sit in one native call, without the interpreter's lock. A run publishes a job and raises a
generation number; workers see it, run their share of every step, and count themselves done. A worker that waited too long
marks itself parked and returns to Python, where it sleeps on a lock that the next run releases: no system call is made
while runs follow one another, and none that only one platform has.

A pool serves one run at a time. A caller who finds it busy (another thread, or a run inside a run) does the whole work
itself; results are the same. In a forked child the workers are gone, so the pools are forgotten and made anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from functools import cache
from typing import Final

import numpy as np
from llvmlite import ir

from rlx_cpu.native.build import I32, I64, POINTER, VOID, address, counted, declare
from rlx_cpu.native.isa import Isa, host_isa
from rlx_cpu.native.jit import Code, compile_named, new_module
from rlx_cpu.native.library import addresses

__all__ = ["RECORD_WORDS", "STEP_WORDS", "Pool", "can_record", "pool_for", "run_alone"]

STEP_WORDS: Final = 3
"""Words of a step in a job: its function, the bytes from the table's start to its buffers, and its flags."""

RECORD_WORDS: Final = 3
"""Words that a thread writes of a step where a record is kept: nanoseconds when it began, when its share was done, when it
went on after the barrier."""

THREADED, BARRIER = 1, 2
"""Flags of a step: all threads take part; all threads meet after it."""

# Byte offsets in the control block; what different threads write is a cache line apart.
_GENERATION, _DONE, _ARRIVED, _PHASE, _JOB, _PARKED = 0, 128, 256, 384, 512, 640
_STEPS, _COUNT, _TABLE, _RECORD = _JOB, _JOB + 8, _JOB + 16, _JOB + 24
_LINE = 64

_PATIENCE: Final = 4096
"""Turns a waiting thread spins at a barrier before it offers its CPU to others, turn by turn."""


class Pool:
    """`size` threads, the caller included."""

    def __init__(self, size: int, spin_us: int) -> None:
        assert size > 1, "one thread needs no pool"
        self.size = size
        self._busy = threading.Lock()
        raw = np.zeros(_PARKED + _LINE * (size + 1), np.uint8)
        self._control_memory = raw
        self._control = raw.ctypes.data + (-raw.ctypes.data % _LINE)
        self._sleep = [threading.Semaphore(0) for _ in range(size)]
        self._runtime = runtime()
        self._thread_ids = [0] * size
        turns = max(1, int(spin_us * self._runtime.pauses_per_us))
        for tid in range(1, size):
            threading.Thread(target=self._work, args=(tid, turns), name=f"rlx-cpu-{tid}", daemon=True).start()

    def _work(self, tid: int, turns: int) -> None:
        work, control, seen = self._runtime.work, self._control, 0
        self._thread_ids[tid] = threading.get_native_id()
        while True:
            seen = work(control, tid, self.size, seen, turns)
            self._sleep[tid].acquire()

    def run(self, steps: int, count: int, table: int, record: int = 0) -> None:
        """Run `count` steps with all threads, or alone if another run has them.

        Args:
            record: Where each thread writes `RECORD_WORDS` a step, thread after thread; 0 for no record.
        """
        if not self._busy.acquire(blocking=False):
            run_alone(steps, count, table, record)
            return
        try:
            if self._runtime.start(self._control, steps, count, table, record, self.size):
                for tid in range(1, self.size):
                    if self._runtime.unpark(self._control, tid):
                        keep_off_this_cpu(self._thread_ids[tid], tid)
                        self._sleep[tid].release()
            self._runtime.finish(self._control, steps, count, table, record, self.size)
        finally:
            self._busy.release()


def keep_off_this_cpu(thread: int, number: int) -> None:
    """Have a sleeping worker wake up on another CPU than the caller's, each on one of its own where there are enough.

    Left alone, the scheduler likes to wake a thread where its waker runs; there it would wait for the waker, who spins in
    wait for it. (Measured on two CPUs: a run of 2.3 ms took 9 ms whenever the worker had been asleep.)
    """
    if _sched_getcpu is None or not thread:
        return
    others = sorted(os.sched_getaffinity(0) - {_sched_getcpu()})
    if others:
        with contextlib.suppress(OSError):  # the thread may be gone, or the set of CPUs have changed under us
            os.sched_setaffinity(thread, {others[(number - 1) % len(others)]})


_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None

_pools: dict[tuple[int, int], Pool] = {}
_pools_lock = threading.Lock()


def pool_for(size: int, spin_us: int) -> Pool:
    """The pool of this process with so many threads."""
    key = (size, spin_us)
    found = _pools.get(key)
    if found is None:
        with _pools_lock:
            found = _pools.get(key)
            if found is None:
                found = _pools[key] = Pool(size, spin_us)
    return found


def _forget() -> None:
    """Start over in a forked child: it has the pools' memory and none of their threads."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run_alone(steps: int, count: int, table: int, record: int = 0) -> None:
    """Run `count` steps with the calling thread alone."""
    runtime().drive(0, steps, count, table, record, 0, 1)


def can_record() -> bool:
    """Whether this platform has the clock that records are made with."""
    return "clock_gettime" in addresses()


# --------------------------------------------------------------------------------- the native half


class Runtime:
    """The functions of the runtime module, callable; the interpreter's lock is released while they run."""

    def __init__(self, code: Code) -> None:
        word = ctypes.c_int64
        self._code = code
        self.drive = ctypes.CFUNCTYPE(None, *[word] * 7)(code.address("drive"))
        self.work = ctypes.CFUNCTYPE(word, *[word] * 5)(code.address("work"))
        self.start = ctypes.CFUNCTYPE(word, *[word] * 6)(code.address("start"))
        self.finish = ctypes.CFUNCTYPE(None, *[word] * 6)(code.address("finish"))
        self.unpark = ctypes.CFUNCTYPE(word, word, word)(code.address("unpark"))
        pauses = ctypes.CFUNCTYPE(None, word)(code.address("pauses"))
        pauses(1000)
        begun = time.perf_counter()
        pauses(10_000)
        self.pauses_per_us = 10_000 / max((time.perf_counter() - begun) * 1e6, 1.0)


@cache
def runtime() -> Runtime:
    """The runtime module, compiled once a process."""
    isa = host_isa()
    assert isa is not None, "the native tier is used only where an instruction set is known"
    return Runtime(compile_named("runtime", lambda: runtime_module(isa), isa))


def runtime_module(isa: Isa) -> ir.Module:
    """Barriers, the loop over steps, and the two sides of a run."""
    module = new_module("runtime")
    _pauses(module, isa)
    _barrier(module, isa)
    _clock(module)
    _drive(module)
    _work(module, isa)
    _start(module)
    _finish(module, isa)
    _unpark(module)
    return module


def _pointer(b: ir.IRBuilder, word: ir.Value, nbytes: int = 0) -> ir.Value:
    return address(b, b.inttoptr(word, POINTER), nbytes)


def _read(b: ir.IRBuilder, place: ir.Value) -> ir.Value:
    return b.load_atomic(place, "seq_cst", 8, typ=I64)


def _write(b: ir.IRBuilder, place: ir.Value, value: ir.Value) -> None:
    b.atomic_rmw("xchg", place, value, "seq_cst")


def _pause(b: ir.IRBuilder, isa: Isa) -> None:
    if isa.pause is not None:
        b.call(declare(b.module, isa.pause, VOID, []), [])


def _yield(b: ir.IRBuilder) -> None:
    """Offer the CPU to another thread, where the platform's library is known to say how."""
    if "sched_yield" in addresses():
        b.call(declare(b.module, "sched_yield", I32, []), [])


def _function(module: ir.Module, name: str, result: ir.Type, count: int) -> tuple[ir.Function, ir.IRBuilder]:
    function = ir.Function(module, ir.FunctionType(result, [I64] * count), name)
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _word(number: int) -> ir.Constant:
    return ir.Constant(I64, number)


def _pauses(module: ir.Module, isa: Isa) -> None:
    """`pauses(n)`: as many turns of a waiting loop, to find out how long one takes."""
    function, b = _function(module, "pauses", VOID, 1)
    with counted(b, _word(0), function.args[0]):
        _pause(b, isa)
    b.ret_void()


def _wait_while(b: ir.IRBuilder, isa: Isa, place: ir.Value, value: ir.Value) -> None:
    """Spin while the word at `place` is `value`; after a while, yield at every turn."""
    function, before = b.function, b.block
    head, turn, tired, again, done = (function.append_basic_block(n) for n in ("wait", "turn", "tired", "again", "met"))
    b.branch(head)
    b.position_at_end(head)
    turns = b.phi(I64)
    turns.add_incoming(_word(0), before)
    b.cbranch(b.icmp_signed("==", _read(b, place), value), turn, done)
    b.position_at_end(turn)
    _pause(b, isa)
    b.cbranch(b.icmp_unsigned(">", turns, _word(_PATIENCE)), tired, again)
    b.position_at_end(tired)
    _yield(b)
    b.branch(again)
    b.position_at_end(again)
    turns.add_incoming(b.add(turns, _word(1)), again)
    b.branch(head)
    b.position_at_end(done)


def _barrier(module: ir.Module, isa: Isa) -> None:
    """`barrier(control, n)`: the last of `n` threads to arrive starts the next phase, which the others wait for."""
    function, b = _function(module, "barrier", VOID, 2)
    function.linkage = "internal"
    control, count = function.args
    arrived, phase = _pointer(b, control, _ARRIVED), _pointer(b, control, _PHASE)
    now = _read(b, phase)
    before = b.atomic_rmw("add", arrived, _word(1), "seq_cst")
    with b.if_else(b.icmp_signed("==", before, b.sub(count, _word(1)))) as (last, others):
        with last:
            _write(b, arrived, _word(0))
            b.atomic_rmw("add", phase, _word(1), "seq_cst")
        with others:
            _wait_while(b, isa, phase, now)
    b.ret_void()


def _clock(module: ir.Module) -> None:
    """`clock()`: nanoseconds of the system's monotonic clock; 0 on a platform without one."""
    function, b = _function(module, "clock", I64, 0)
    function.linkage = "internal"
    if not can_record():
        b.ret(_word(0))
        return
    spec = b.alloca(I64, size=2)
    spec.align = 8
    get = declare(module, "clock_gettime", I32, [I32, POINTER])
    b.call(get, [ir.Constant(I32, time.CLOCK_MONOTONIC), spec])
    seconds, nanoseconds = (b.load(address(b, spec, 8 * i), typ=I64, align=8) for i in range(2))
    b.ret(b.add(b.mul(seconds, _word(1_000_000_000)), nanoseconds))


def _drive(module: ir.Module) -> None:
    """`drive(control, steps, count, table, record, tid, n)`: one thread's share of all steps."""
    function, b = _function(module, "drive", VOID, 7)
    control, steps, count, table, record, tid, threads = function.args
    kernel = ir.FunctionType(VOID, [POINTER, I64, I64])
    is_first = b.icmp_signed("==", tid, _word(0))
    is_alone = b.icmp_signed("==", threads, _word(1))
    is_recorded = b.icmp_signed("!=", record, _word(0))
    own_record = b.add(record, b.mul(b.mul(tid, count), _word(8 * RECORD_WORDS)))
    with counted(b, _word(0), count) as i:
        step = _pointer(b, b.add(steps, b.mul(i, _word(8 * STEP_WORDS))))
        line = b.add(own_record, b.mul(i, _word(8 * RECORD_WORDS)))

        def stamp(position: int, line: ir.Value = line) -> None:
            with b.if_then(is_recorded, likely=False):
                b.store(b.call(module.globals["clock"], []), _pointer(b, line, 8 * position), align=8)

        code, offset, flags = (b.load(address(b, step, 8 * k), typ=I64, align=8) for k in range(STEP_WORDS))
        run = b.inttoptr(code, kernel.as_pointer())
        buffers = _pointer(b, b.add(table, offset))
        is_shared = b.icmp_signed("!=", b.and_(flags, _word(THREADED)), _word(0))
        stamp(0)
        with b.if_else(is_shared) as (shared, alone):
            with shared:
                b.call(run, [buffers, tid, threads])
            with alone, b.if_then(is_first):
                b.call(run, [buffers, _word(0), _word(1)])
        stamp(1)
        meets = b.and_(b.icmp_signed("!=", b.and_(flags, _word(BARRIER)), _word(0)), b.not_(is_alone))
        with b.if_then(meets):
            b.call(module.globals["barrier"], [control, threads])
        stamp(2)
    b.ret_void()


def _work(module: ir.Module, isa: Isa) -> None:
    """`work(control, tid, n, seen, turns)`: serve jobs until none came for `turns` turns; the last generation served."""
    function, b = _function(module, "work", I64, 5)
    control, tid, threads, seen, limit = function.args
    entry = b.block
    wait, turn, again, tired, back, asleep, serve = (
        function.append_basic_block(n) for n in ("wait", "turn", "again", "tired", "back", "asleep", "serve")
    )
    generation = _pointer(b, control, _GENERATION)
    parked = address(b, _pointer(b, control, _PARKED), b.mul(tid, _word(_LINE)))
    b.branch(wait)

    b.position_at_end(wait)
    last, turns = b.phi(I64), b.phi(I64)
    last.add_incoming(seen, entry)
    turns.add_incoming(_word(0), entry)
    now = _read(b, generation)
    b.cbranch(b.icmp_signed("!=", now, last), serve, turn)

    b.position_at_end(turn)
    _pause(b, isa)
    b.cbranch(b.icmp_signed(">", turns, limit), tired, again)

    b.position_at_end(again)
    last.add_incoming(last, again)
    turns.add_incoming(b.add(turns, _word(1)), again)
    b.branch(wait)

    # Whoever starts a run raises the generation and then looks for sleepers; a sleeper says so and then looks at the
    # generation. One of the two sees the other.
    b.position_at_end(tired)
    _write(b, parked, _word(1))
    b.cbranch(b.icmp_signed("!=", _read(b, generation), last), back, asleep)

    b.position_at_end(back)
    was = b.atomic_rmw("xchg", parked, _word(0), "seq_cst")
    # If the mark is gone already, the other side has released the lock, and it must be taken.
    last.add_incoming(last, back)
    turns.add_incoming(_word(0), back)
    b.cbranch(b.icmp_signed("==", was, _word(1)), wait, asleep)

    b.position_at_end(asleep)
    b.ret(last)

    b.position_at_end(serve)
    steps, count, table, record = (
        b.load(_pointer(b, control, offset), typ=I64, align=8) for offset in (_STEPS, _COUNT, _TABLE, _RECORD)
    )
    b.call(module.globals["drive"], [control, steps, count, table, record, tid, threads])
    b.atomic_rmw("add", _pointer(b, control, _DONE), _word(1), "seq_cst")
    last.add_incoming(now, b.block)
    turns.add_incoming(_word(0), b.block)
    b.branch(wait)


def _start(module: ir.Module) -> None:
    """`start(control, steps, count, table, record, n)`: publish a job; how many workers sleep."""
    function, b = _function(module, "start", I64, 6)
    control, steps, count, table, record, threads = function.args
    for value, offset in ((steps, _STEPS), (count, _COUNT), (table, _TABLE), (record, _RECORD)):
        b.store(value, _pointer(b, control, offset), align=8)
    _write(b, _pointer(b, control, _DONE), _word(0))
    b.atomic_rmw("add", _pointer(b, control, _GENERATION), _word(1), "seq_cst")
    total = b.alloca(I64)
    b.store(_word(0), total, align=8)
    with counted(b, _word(1), threads) as tid:
        flag = _read(b, address(b, _pointer(b, control, _PARKED), b.mul(tid, _word(_LINE))))
        b.store(b.add(b.load(total, typ=I64, align=8), flag), total, align=8)
    b.ret(b.load(total, typ=I64, align=8))


def _finish(module: ir.Module, isa: Isa) -> None:
    """`finish(control, steps, count, table, record, n)`: the caller's own share, then wait for the others."""
    function, b = _function(module, "finish", VOID, 6)
    control, steps, count, table, record, threads = function.args
    b.call(module.globals["drive"], [control, steps, count, table, record, _word(0), threads])
    others = b.sub(threads, _word(1))
    head, more, done = (function.append_basic_block(n) for n in ("head", "more", "done"))
    place = _pointer(b, control, _DONE)
    b.branch(head)
    b.position_at_end(head)
    now = _read(b, place)
    b.cbranch(b.icmp_signed("==", now, others), done, more)
    b.position_at_end(more)
    _wait_while(b, isa, place, now)
    b.branch(head)
    b.position_at_end(done)
    b.ret_void()


def _unpark(module: ir.Module) -> None:
    """`unpark(control, tid)`: whether a worker slept; it does not any more."""
    function, b = _function(module, "unpark", I64, 2)
    control, tid = function.args
    b.ret(
        b.atomic_rmw("xchg", address(b, _pointer(b, control, _PARKED), b.mul(tid, _word(_LINE))), _word(0), "seq_cst")
    )

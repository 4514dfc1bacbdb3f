"""Threads that run a program's steps together: they claim parts of a step, meet at barriers, spin for a while, then park.

Workers are Python threads that run one native call, without the interpreter's lock. A run publishes a job and increments a
generation number; workers see it and enter while the run's gate is open. Every step is cut into parts, which a thread claims
one by one, first from its share and then from the parts that are not yet started: a worker that is late or descheduled delays
only the part that it is executing. A step is complete when its parts are, independent of the threads; so are the results of its
parts. A worker that has waited too long marks itself parked and returns to Python, where it sleeps on a lock that the next run
releases: no system call is made between consecutive runs, and no platform-specific one is used.

Entries acquire the pool and start runs from native code (`entry_code.py`), by the same word that marks it as free; they return
to Python only to wake threads.

A pool serves one run at a time. A caller who finds it busy (another thread, or a nested run) does all the work in its own
thread; results are the same. In a forked child there are no workers, so the pools are discarded and created again.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from functools import cache

import numpy as np

from rlx_core.system.locks import Lock, in_child
from rlx_cpu.native.runtime.code import BUSY, HOME, LINE, STATE_BYTES, STEPS, WORKERS, ProgramCode
from rlx_cpu.native.runtime.linked import code_of
from rlx_cpu.native.threads import started


class Runtime:
    """The functions of the module, callable; the interpreter's lock is released while they run."""

    def __init__(self, code: ProgramCode) -> None:
        word = ctypes.c_int64
        self._code = code
        self.address = code.address
        self.drive = ctypes.CFUNCTYPE(None, *[word] * 7)(code.address("drive"))
        self.work = ctypes.CFUNCTYPE(word, *[word] * 5)(code.address("work"))
        self.start = ctypes.CFUNCTYPE(word, *[word] * 7)(code.address("start"))
        self.finish = ctypes.CFUNCTYPE(None, *[word] * 6)(code.address("finish"))
        self.take = ctypes.PYFUNCTYPE(word, word)(code.address("take"))
        self.leave = ctypes.PYFUNCTYPE(None, word)(code.address("leave"))
        self.unpark = ctypes.CFUNCTYPE(word, word, word)(code.address("unpark"))
        pauses = ctypes.CFUNCTYPE(None, word)(code.address("pauses"))
        pauses(1000)
        begun = time.perf_counter()
        pauses(10_000)
        self.pauses_per_us = 10_000 / max((time.perf_counter() - begun) * 1e6, 1.0)


@cache
def runtime() -> Runtime:
    """The module of this process."""
    return Runtime(code_of(STEPS))


class ThreadPool:
    """`size` threads, the caller included.

    Args:
        size: Number of threads.
        spin_us: How long a worker waits for a run before it parks.
        control: A block of `control_block(size)` that others know already.
    """

    def __init__(self, size: int, spin_us: int, control: np.ndarray | None = None) -> None:
        assert size > 1, "one thread needs no pool"
        self.size = size
        self._control = control_block(size) if control is None else control
        self._homes = self._control[(WORKERS + HOME) // 8 :: LINE // 8]
        self._homes[:] = -1
        self._state = _aligned_words(STATE_BYTES * 256)
        self._sleep = [threading.Semaphore(0) for _ in range(size)]
        self._runtime = runtime()
        self._thread_ids = [0] * size
        turns = max(1, int(spin_us * self._runtime.pauses_per_us))
        for tid in range(1, size):
            if not started(self._work, tid, turns):
                break  # a step is run by the threads that exist
        self._control[BUSY // 8] = 0

    def _work(self, tid: int, turns: int) -> None:
        work, control, seen = self._runtime.work, self._control.ctypes.data, 0
        self._thread_ids[tid] = threading.get_native_id()
        while True:
            seen = work(control, tid, self.size, seen, turns)
            self._sleep[tid].acquire()

    def run(self, steps: int, count: int, table: int, record: int = 0) -> None:
        """Run `count` steps with all threads, or alone if another run has them.

        Args:
            record: Address to which each thread writes `RECORD_WORDS` per step, thread after thread; 0 for no record.
        """
        runtime, control = self._runtime, self._control.ctypes.data
        if not runtime.take(control):
            run_alone(steps, count, table, record)
            return
        try:
            if count * STATE_BYTES > self._state.nbytes:
                self._state = _aligned_words(2 * count * STATE_BYTES)
            if runtime.start(control, steps, count, table, record, self._state.ctypes.data, self.size):
                self.wake()
            runtime.finish(control, steps, count, table, record, self.size)
        finally:
            runtime.leave(control)

    def wake(self) -> None:
        """Wake the workers that are parked, once a run has been published."""
        for tid in range(1, self.size):
            self._wake(tid)

    def _wake(self, tid: int) -> None:
        """Wake a worker that is parked; move one that would wait for the CPU of the caller, who spins in wait for it."""
        is_asleep = self._runtime.unpark(self._control.ctypes.data, tid)
        if is_asleep or (_sched_getcpu is not None and self._homes[tid] == _sched_getcpu()):
            self._homes[tid] = keep_off_this_cpu(self._thread_ids[tid], tid)
        if is_asleep:
            self._sleep[tid].release()


def keep_off_this_cpu(thread: int, number: int) -> int:
    """Move a worker to another CPU than the caller's, and to separate CPUs if there are enough; return which, or -1.

    By default, the scheduler tends to wake a thread on its waker's CPU. (Measured on two CPUs: a run of 2.3 ms took 9 ms
    whenever the worker had been asleep.)
    """
    if _sched_getcpu is None or not thread:
        return -1
    others = sorted(os.sched_getaffinity(0) - {_sched_getcpu()})
    if not others:
        return -1
    home = others[(number - 1) % len(others)]
    try:
        os.sched_setaffinity(thread, {home})
    except OSError:  # the thread is gone, or the set of CPUs has changed under us
        return -1
    return home


def _aligned_words(nbytes: int) -> np.ndarray:
    """Zeroed words that start at a cache line."""
    raw = np.zeros(nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + nbytes].view(np.int64)


def control_block(size: int) -> np.ndarray:
    """The words that a pool's threads share, busy until there are threads."""
    words = _aligned_words(WORKERS + LINE * size)
    words[BUSY // 8] = 1
    return words


def state_words(count: int) -> np.ndarray:
    """Return memory for the state of `count` steps."""
    return _aligned_words(STATE_BYTES * count)


_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None

_pools: dict[tuple[int, int], ThreadPool] = {}
_controls: dict[tuple[int, int], np.ndarray] = {}
_pools_lock = Lock("the pools of threads")


def control_for(size: int, spin_us: int) -> np.ndarray:
    """The control block of `pool_for(size, spin_us)`, whether that exists by now or not."""
    return _controls.setdefault((size, spin_us), control_block(size))


def pool_for(size: int, spin_us: int) -> ThreadPool:
    """The pool of this process with so many threads."""
    key = (size, spin_us)
    pool = _pools.get(key)
    if pool is None:
        with _pools_lock:
            pool = _pools.get(key)
            if pool is None:
                pool = _pools[key] = ThreadPool(size, spin_us, control_for(size, spin_us))
    return pool


def _forget() -> None:
    """Start over in a forked child: it has the pools' memory and none of their threads."""
    for control in _controls.values():
        control[BUSY // 8] = 1  # existing entries have its address, and it has no workers
    _controls.clear()
    _pools.clear()


in_child(_forget)


def run_alone(steps: int, count: int, table: int, record: int = 0) -> None:
    """Run `count` steps with the calling thread alone."""
    runtime().drive(0, steps, count, table, record, 0, 1)

"""Jobs that run in parallel with the interpreter: calls into LLVM, which do not hold the GIL.

Worker threads exist while there are jobs, which they take in FIFO order. Results do not depend on workers: a thread that
requests a result whose job has not been started runs the job itself. Hence a machine without memory for another thread, a
forked child (which has no workers) and a signal handler all make progress. A job that fails counts as not started: the thread
that requests its result runs it again and raises the error, so a temporary lack of resources is not permanent.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from threading import get_ident
from typing import Any, Final, Generic, TypeVar

from rlx_core.system.locks import LOOK_AGAIN, Lock, forks_wait, in_child, waiting, waits_for_itself
from rlx_cpu.native.llvm.calls import is_entered
from rlx_cpu.native.threads import started, usable_cpus

T = TypeVar("T")
K = TypeVar("K")

_INTERVAL: Final = 1e-4
"""Seconds that the thread waits for the interpreter between two calls of LLVM; by default they are five thousandths."""

MOST_THREADS: Final = 4

_STARTS_WITHIN: Final = 1.0
"""Seconds after which a started thread that is still idle is assumed to have had no memory to begin with."""


class JobFuture(Generic[T]):
    """The future result of a job. The job may be run more than once, if it fails or if a signal handler requests its result."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job: Callable[[], T] | None = job
        self._begun: dict[str, tuple[int, object]] = {}  # by which thread, and which of its attempts
        self._result: tuple[T] | None = None
        self._waiting: list[threading.Lock] = []

    @property
    def is_done(self) -> bool:
        return self._result is not None

    @property
    def owner(self) -> int | None:
        """The thread that has it in hand."""
        begun = self._begun.get("by")
        return None if begun is None or self.is_done else begun[0]

    def result(self) -> T:
        """Return the result, or raise the job's exception."""
        while self._result is None:
            if not self.run() and not self._wait():
                job = self._job
                if job is not None:
                    return job()  # the thread that runs the job cannot continue before this returns
        return self._result[0]

    def run(self) -> bool:
        """Run the job in this thread unless another thread has started it; return whether it was run."""
        with forks_wait:
            job, mine = self._job, (get_ident(), object())
            # `setdefault` is one instruction: exactly one of several threads starts the job, and each knows at once whether it
            # does.
            if job is None or self._begun.setdefault("by", mine) is not mine:
                return False
            try:
                self._result = (job(),)
                self._job = None
            finally:
                if self._result is None:
                    self._begun.clear()
                while self._waiting:
                    self._waiting.pop().release()
        return True

    def _wait(self) -> bool:
        """Wait until another thread has completed the job, or failed; return whether waiting is possible.

        It is not if the thread that runs the job waits, directly or indirectly, for this thread. That is the case in a signal
        handler that interrupted a thread which has started this job, has started a job for which that job's thread waits, or
        holds llvmlite's lock.
        """
        mine = threading.Lock()  # one lock per wait: a handler may wait while its thread does
        mine.acquire()
        self._waiting.append(mine)
        with waiting(self):
            while self._result is None and self._begun:
                if is_entered() or waits_for_itself():
                    return False
                if mine.acquire(timeout=LOOK_AGAIN):
                    break
        return True


# ------------------------------------------------------------------------------------------- threads

_jobs: deque[JobFuture[Any]] = deque()
_doing: dict[int, JobFuture[Any]] = {}
"""Worker → the job that it has in hand."""
_workers: dict[object, float] = {}
"""Every worker, and when it was started; once it is there, infinity."""


def later(job: Callable[[], T]) -> JobFuture[T]:
    """Run a job in the background."""
    future = JobFuture(job)
    if is_entered():  # in a signal handler: no other thread can enter LLVM until it returns
        return future
    _jobs.append(future)
    now = time.monotonic()
    if sum(1 for since in list(_workers.values()) if since > now - _STARTS_WITHIN) < _most_threads():
        worker = object()
        _workers[worker] = now
        if not started(_work, worker):
            _workers.pop(worker, None)
    return future


@cache
def _most_threads() -> int:
    return min(usable_cpus(), MOST_THREADS)


def _work(worker: object) -> None:
    me = get_ident()
    try:
        while True:
            _workers[worker] = float("inf")
            while _jobs:
                with suppress(IndexError):  # another worker was faster
                    _doing[me] = _jobs.popleft()
                    with suppress(BaseException):  # the thread that requests the result raises the error
                        _doing[me].run()
                _doing.pop(me, None)
            _workers.pop(worker, None)
            if not _jobs:  # else one came while this worker was still counted
                return
    finally:
        _workers.pop(worker, None)


def drain() -> None:
    """Do or wait for everything that was given so far."""
    while True:
        try:
            left = _jobs.popleft()
        except IndexError:
            break
        with suppress(Exception):  # the thread that requests the result raises the error
            left.run()
    for each in list(_doing.values()):
        with suppress(Exception):
            each.result()


def _forget() -> None:
    """In a forked child: there are no workers, and what they had not begun is for those who ask for it."""
    _workers.clear()
    _doing.clear()


atexit.register(drain)  # so that what was begun is finished, and no file half written
in_child(_forget)


# ------------------------------------------------------------------------------------------- sharing


def share_out(work: Callable[[K], None], keys: Iterable[K], threads: int) -> None:
    """Do the work for every key, with so many threads at most, the caller among them; what one raises is raised."""
    jobs = [JobFuture(partial(work, key)) for key in keys]

    def take() -> None:
        with suppress(BaseException):  # the caller comes to the one that failed, and has the error
            for job in jobs:
                job.run()

    for _ in range(1, min(threads, len(jobs))):
        if not started(take):
            break
    for job in jobs:
        job.run()
    for job in jobs:
        job.result()


_yields = 0
_before = 0.0
_interval_lock: Final = Lock("the interpreter's interval")


@contextmanager
def yielding() -> Iterator[None]:
    """Context in which Python code yields the interpreter to the background threads as soon as they request it.

    A job is many short calls, each of which needs the interpreter afterwards for a moment. The switch interval is global, so
    the first thread that enters changes it and the last that leaves restores it.
    """
    global _yields, _before
    with _interval_lock:
        if _yields == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, _INTERVAL))
        _yields += 1
    try:
        yield
    finally:
        with _interval_lock:
            _yields -= 1
            if _yields == 0:
                sys.setswitchinterval(_before)

"""Jobs that run beside the interpreter: LLVM's work, which holds no lock of Python's.

Jobs are begun in the order in which they were given, so that one may wait for what was given before it. Threads are there
while there are jobs. They are no daemons, so that what was begun is finished before the process ends; and a fork waits for
them, because in the child they would be gone, with whatever locks they held.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Generic, TypeVar

from rlx_cpu.native.threads import usable_cpus

__all__ = ["Later", "later", "share_out", "yielding"]

T = TypeVar("T")
K = TypeVar("K")

_INTERVAL: Final = 1e-4
"""Seconds that the thread waits for the interpreter between two calls of LLVM; by default they are five thousandths."""


class Later(Generic[T]):
    """What a job will have come to."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job: Callable[[], T] | None = job
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def result(self) -> T:
        """The result, once it is there; what the job raised is raised here."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        found: T = self._result
        return found

    def run(self) -> None:
        """Do it now, in this thread."""
        assert self._job is not None, "a job runs once"
        try:
            self._result = self._job()
        except BaseException as error:  # noqa: BLE001  it is whoever asks for the result that it concerns
            self._error = error
        self._job = None
        self._done.set()


MOST_THREADS: Final = 4

_lock = threading.Lock()
_jobs: deque[Later[Any]] = deque()
_workers: set[threading.Thread] = set()


def later(job: Callable[[], T]) -> Later[T]:
    """Run a job in the background."""
    made = Later(job)
    with _lock:
        _jobs.append(made)
        if len(_workers) < _most_threads():
            worker = threading.Thread(target=_work, name=f"rlx-llvm-{len(_workers)}")
            _workers.add(worker)
            try:
                worker.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                _workers.discard(worker)
    if not _workers:
        _work()
    return made


@cache
def _most_threads() -> int:
    return min(usable_cpus(), MOST_THREADS)


def _work() -> None:
    while True:
        with _lock:
            if not _jobs:
                _workers.discard(threading.current_thread())
                return
            job = _jobs.popleft()
        job.run()


def _drain() -> None:
    for worker in tuple(_workers):
        if worker is not threading.current_thread():
            worker.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_drain)


def share_out(work: Callable[[K], None], keys: Iterable[K], threads: int) -> None:
    """Do the work for every key, with so many threads at most, the caller among them; what one raises is raised."""
    left = deque(keys)
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            try:
                key = left.popleft()
            except IndexError:  # nothing is left
                return
            try:
                work(key)
            except BaseException as error:  # noqa: BLE001  the caller raises it
                errors.append(error)

    helpers = [threading.Thread(target=take, name=f"rlx-help-{n}") for n in range(1, min(threads, len(left)))]
    for each in helpers:
        each.start()
    take()
    for each in helpers:
        each.join()
    if errors:
        raise errors[0]


_yields = 0
_before = 0.0


@contextmanager
def yielding() -> Iterator[None]:
    """Inside, whoever runs Python lets the background have the interpreter as soon as it asks.

    A job is many short calls, after each of which it needs the interpreter for a moment. The interval is the interpreter's, so
    the first that comes here changes it and the last that leaves changes it back.
    """
    global _yields, _before
    with _lock:
        if _yields == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, _INTERVAL))
        _yields += 1
    try:
        yield
    finally:
        with _lock:
            _yields -= 1
            if _yields == 0:
                sys.setswitchinterval(_before)

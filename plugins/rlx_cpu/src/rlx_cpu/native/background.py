"""Jobs that run beside the interpreter, one after the other in one thread: LLVM's work, which holds no lock of Python's.

The thread is there while there are jobs. It is no daemon, so that what was begun is finished before the process ends; and a fork
waits for it, because in the child it would be gone, with whatever locks it held.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

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


_lock = threading.Lock()
_jobs: deque[Later[Any]] = deque()
_worker: threading.Thread | None = None


def later(job: Callable[[], T]) -> Later[T]:
    """Run a job in the background, after those that were given before."""
    global _worker
    made = Later(job)
    with _lock:
        _jobs.append(made)
        if _worker is None:
            _worker = threading.Thread(target=_work, name="rlx-llvm")
            try:
                _worker.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                _worker = None
                while _jobs:
                    _jobs.popleft().run()
    return made


def _work() -> None:
    global _worker
    while True:
        with _lock:
            if not _jobs:
                _worker = None
                return
            job = _jobs.popleft()
        job.run()


def _drain() -> None:
    worker = _worker
    if worker is not None and worker is not threading.current_thread():
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

"""The end of the process: calls of OpenCL are over before Python ends, in daemon threads too.

Python ends a daemon thread when it comes back from a call that had released the interpreter. PyOpenCL is C++, through which no
thread can be ended that way: the process aborts. PoCL's own threads work on until the queue is finished.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakMethod

__all__ = ["ExitGuard", "guarded"]

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE: Final = 30.0
"""Seconds that the end of the process waits for calls of other threads: kernels may take long, and some never end."""


class ExitGuard:
    """Which threads are in calls of a driver; from the end of the process on, no other thread gets into one.

    Args:
        finish: Waits for what the driver has submitted. Referred to weakly, because a driver refers to its guard.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = WeakMethod(finish)
        self._inside: dict[int, int] = {}
        self._exiting: int | None = None
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    def enter(self) -> None:
        me = threading.get_ident()
        self._inside[me] = self._inside.get(me, 0) + 1  # before looking who exits, who looks the other way round
        if self._exiting is not None and self._exiting != me and self._inside[me] == 1:
            del self._inside[me]
            while True:  # Python ends without this thread, which has no frames of C++ here
                time.sleep(PATIENCE)

    def leave(self) -> None:
        me = threading.get_ident()
        depth = self._inside.get(me, 1) - 1
        if depth:
            self._inside[me] = depth
        else:
            self._inside.pop(me, None)

    def _at_exit(self) -> None:
        finish = self._finish()
        if finish is None or os.getpid() != self._pid:  # nothing was opened, or in another process
            return
        self._exiting = threading.get_ident()
        end = time.monotonic() + PATIENCE
        while any(thread != self._exiting for thread in list(self._inside)) and time.monotonic() < end:
            time.sleep(0.001)
        finish()


class Guarded(Protocol):
    """A driver with a guard."""

    guard: ExitGuard


D = TypeVar("D", bound=Guarded)


def guarded(method: Callable[Concatenate[D, P], R]) -> Callable[Concatenate[D, P], R]:
    """A method of a driver within its guard."""

    @functools.wraps(method)
    def called(driver: D, /, *args: P.args, **kwargs: P.kwargs) -> R:
        driver.guard.enter()
        try:
            return method(driver, *args, **kwargs)
        finally:
            driver.guard.leave()

    found: Any = called
    return found

"""Process exit: all OpenCL calls, including those of daemon threads, are completed before the interpreter finalises.

At finalisation, Python terminates a daemon thread when it returns from a call that released the GIL. This cannot unwind the C++
frames of PyOpenCL, and the process aborts. PoCL's worker threads run until the queue is finished.
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

import pyopencl as cl

from rlx_core.errors import RlxError

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE: Final = 30.0
"""Seconds that process exit waits for calls of other threads: kernels may take long, and some never end."""


class ExitGuard:
    """Tracks the threads inside driver calls, and blocks new calls of other threads once the process exits.

    Args:
        finish: Waits for all submitted commands of the driver. The reference is weak, because a driver refers to its guard.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = WeakMethod(finish)
        self._inside: dict[int, int] = {}
        self._exiting: int | None = None
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    def enter(self) -> None:
        me = threading.get_ident()
        self._inside[me] = self._inside.get(me, 0) + 1  # before `_exiting` is read; `_at_exit`: in reverse order
        if self._exiting is not None and self._exiting != me and self._inside[me] == 1:
            del self._inside[me]
            while True:  # the interpreter exits without this thread, which has no C++ frames here
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
        if finish is None or os.getpid() != self._pid:  # the driver is gone, or this is a forked process
            return
        self._exiting = threading.get_ident()
        end = time.monotonic() + PATIENCE
        while any(thread != self._exiting for thread in list(self._inside)) and time.monotonic() < end:
            time.sleep(0.001)
        finish()


class Guarded(Protocol):
    """Protocol of a driver with an exit guard."""

    guard: ExitGuard

    def translated(self, error: cl.Error) -> RlxError:
        """Return the error of rlx for one of OpenCL."""


D = TypeVar("D", bound=Guarded)


def guarded(method: Callable[Concatenate[D, P], R]) -> Callable[Concatenate[D, P], R]:
    """Wrap a method of a driver in calls of its guard, and translate the errors of OpenCL."""

    @functools.wraps(method)
    def called(driver: D, /, *args: P.args, **kwargs: P.kwargs) -> R:
        driver.guard.enter()
        try:
            return method(driver, *args, **kwargs)
        except cl.Error as error:
            raise driver.translated(error) from None
        finally:
            driver.guard.leave()

    wrapped: Any = called
    return wrapped

"""Others that call what a test has made: threads side by side, and forked children, which must end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

__all__ = ["finished", "forked", "forks", "side_by_side"]


def side_by_side(*calls: Callable[[], Any]) -> list[Any]:
    """What each call returns, in a thread of its own; the first error of any is raised after all have ended."""
    with ThreadPoolExecutor(len(calls)) as threads:
        waiting = [threads.submit(call) for call in calls]
    return [each.result() for each in waiting]


def forks(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that forks: newer Pythons warn of that beside threads, and some platforms cannot."""
    test = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork: no child inherits a pool")(test)


def forked(holds: Callable[[], bool]) -> int:
    """A child that asks whether `holds`, and goes on beside its parent until it is `finished`."""
    child = os.fork()
    if child == 0:
        status = 2
        with suppress(BaseException):  # nothing may leave this frame: it is a copy of the tests
            status = 0 if holds() else 1
        os._exit(status)
    return child


def finished(child: int) -> int:
    """The exit status of a forked child: 0 where what it asked holds, 1 where not, 2 after an error.

    It is ended, and the test fails, where it hangs.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return pytest.fail("the child hangs")

"""Runs on a device: any number at a time, or one alone, when memory is short.

A run that cannot allocate its frame may only have come at a bad moment: other runs use the memory, and free it when they are
done. So it frees its memory, waits until no other run is in progress, and tries again while all later runs wait.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Final

from rlx_core.system.locks import Lock

_LOOK_AGAIN: Final = 0.0005
"""Seconds between checks of a waiting run for other runs in progress."""


class Turns:
    """Scheduler of the runs on one device: concurrent, or one run exclusively.

    A run inside a run of the same thread (a signal handler's, or a step's on the host) never waits: it would wait for itself.
    """

    def __init__(self, place: str) -> None:
        self.alone_lock = Lock(f"the memory of {place}")
        self.running: dict[int, int] = {}  # thread → its runs; each thread changes its own
        self._run = _Run(self)

    @property
    def is_inside(self) -> bool:
        """Return whether this thread has a run in progress."""
        return get_ident() in self.running

    def among_others(self) -> AbstractContextManager[None]:
        """Context of a run that may be concurrent with others."""
        return self._run

    def alone(self) -> AbstractContextManager[None]:
        """Context of a run during which no other thread has one."""
        return self._run if self.is_inside else _Alone(self, self._run)


class _Alone(AbstractContextManager[None]):
    """See `Turns.alone`; a class, because a lock cannot be held by a generator."""

    def __init__(self, turns: Turns, run: AbstractContextManager[None]) -> None:
        self._turns, self._run = turns, run

    def __enter__(self) -> None:
        turns, me = self._turns, get_ident()
        turns.alone_lock.__enter__(sys._getframe(1))
        try:
            while any(thread != me for thread in list(turns.running)):
                time.sleep(_LOOK_AGAIN)
            self._run.__enter__()
        except BaseException:
            turns.alone_lock.__exit__()
            raise

    def __exit__(self, *raised: object) -> None:
        try:
            self._run.__exit__(None, None, None)
        finally:
            self._turns.alone_lock.__exit__()


class _Run(AbstractContextManager[None]):
    """A run of the thread that enters; a class, because every run uses it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        turns, me = self._turns, get_ident()
        depth = turns.running.get(me, 0)
        turns.running[me] = depth + 1  # before the check for a thread that is alone, which checks in the opposite order
        while depth == 0 and turns.alone_lock.owner not in (None, me):
            del turns.running[me]
            with turns.alone_lock:
                turns.running[me] = 1

    def __exit__(self, *raised: object) -> None:
        running, me = self._turns.running, get_ident()
        if running[me] == 1:
            del running[me]
        else:
            running[me] -= 1

"""The steps of a run as the words that threads read, and the data with which an entry uses the threads of a pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_core.system.records import frozen
from rlx_cpu.native.runtime.entry import Team
from rlx_cpu.native.runtime.pool import control_for, pool_for, runtime, state_words
from rlx_cpu.native.runtime.pool_words import CALLERS, MEETS, STEP_WORDS

__all__ = ["Call", "call_words", "team_for"]


@frozen
class Call:
    """A function that a run calls.

    Attributes:
        function: Its address.
        first: Bytes from the table's start to its buffers.
        parts: Preferred number of parts; 0 for one per thread.
        is_threaded: Whether threads share it.
        polls: Whether it looks for signals, which the caller alone may be sent.
    """

    function: int
    first: int
    parts: int
    is_threaded: bool
    polls: bool = False


def call_words(calls: Sequence[Call], threads: int) -> np.ndarray:
    """The words of a run, a row per call; see `STEP_WORDS`."""
    words = np.zeros((len(calls), STEP_WORDS), np.int64)
    is_serial, head = False, 0
    for i, each in enumerate(calls):
        # One thread's steps follow one another by themselves; everything else meets in between.
        before, is_serial = is_serial, not each.is_threaded
        following = calls[i + 1].is_threaded if i + 1 < len(calls) else True
        parts = (0 if before else 1) if is_serial else max(each.parts, threads)
        words[i] = each.function, each.first, parts, MEETS if following or not is_serial else 0
        head = head if is_serial and before else i
        if each.polls:
            words[head, -1] |= CALLERS  # one thread runs the first of serial steps and those that follow
    return words


def team_for(words: np.ndarray, table: int, threads: int, spin_us: int) -> Team:
    """Return an entry's access to the threads of a pool for the run of some words, on the table at an address."""
    start, finish, leave = (runtime().address(name) for name in ("start", "finish", "leave"))
    return Team(
        control_for(threads, spin_us), threads, start, finish, leave,
        words.ctypes.data, table, state_words(len(words)), lambda: pool_for(threads, spin_us).wake(),
    )  # fmt: skip

"""The steps of a run as the words that threads read, and the data with which an entry uses the threads of a pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_cpu.native.runtime.compiled import NativeStep
from rlx_cpu.native.runtime.entry import Content
from rlx_cpu.native.runtime.entry_words import Word
from rlx_cpu.native.runtime.pool import control_for, pool_for, runtime, state_words
from rlx_cpu.native.runtime.pool_words import CALLERS, MEETS, STEP_WORDS


def call_words(calls: Sequence[tuple[NativeStep, str]], threads: int) -> np.ndarray:
    """The words of a run, a row for each call of a step's function; see `STEP_WORDS`."""
    words = np.zeros((len(calls), STEP_WORDS), np.int64)
    is_serial, head = False, 0
    for i, (step, function) in enumerate(calls):
        emitted = step.emitted
        # One thread's steps follow one another by themselves; everything else meets in between.
        before, is_serial = is_serial, not emitted.uses_threads
        following = calls[i + 1][0].emitted.uses_threads if i + 1 < len(calls) else True
        parts = (0 if before else 1) if is_serial else max(emitted.parts, threads)
        words[i] = step.address_of(function), 8 * step.first, parts, MEETS if following or not is_serial else 0
        head = head if is_serial and before else i
        if emitted.polls:
            words[head, -1] |= CALLERS  # one thread runs the first of serial steps and those that follow
    return words


def contents_of_pool(words: np.ndarray, table: np.ndarray, threads: int, spin_us: int) -> dict[Word, Content]:
    """The words by which an entry uses the threads of a pool for the run of some words, on a table of addresses."""

    def wake() -> None:
        pool_for(threads, spin_us).wake()

    functions = {Word.START: "start", Word.FINISH: "finish", Word.LEAVE: "leave"}
    return {
        Word.POOL: control_for(threads, spin_us),
        Word.THREADS: threads,
        **{word: runtime().address(name) for word, name in functions.items()},
        Word.STEPS: words,
        Word.TABLE: table,
        Word.STATE: state_words(len(words)),
        Word.WAKE: wake,
    }

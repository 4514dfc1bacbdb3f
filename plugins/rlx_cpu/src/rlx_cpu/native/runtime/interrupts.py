"""Interruption of native loops by signal handlers: the function they poll, and re-raising of the handler's exception.

A loop that runs long has status words; after those for faults come the address of `interrupted` and the address of this
process's record.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache

import numpy as np

from rlx_core.system.locks import in_child
from rlx_cpu.native import runtime
from rlx_cpu.native.contract import NO_NUMBER, STATUS_LEFT
from rlx_cpu.native.llvm.c_library import has_clock
from rlx_cpu.native.runtime.code import CAUGHT, ENTRY, MAIN_THREAD, RECORD_BYTES
from rlx_cpu.native.runtime.linked import code_of

_record = np.zeros(RECORD_BYTES // 8, np.int64)


def _know_main_thread() -> None:
    _record[MAIN_THREAD // 8] = threading.main_thread().ident or 0


_know_main_thread()
in_child(_know_main_thread)


@cache
def _asked() -> tuple[int, int]:
    """The two words that a loop asks by; 0 where the interpreter or the clock is not one that native code knows."""
    if runtime.interpreter.reason_against() is not None or not has_clock():
        return 0, 0
    return code_of(ENTRY).address("interrupted"), _record.ctypes.data


def status_rows(polls: Sequence[bool]) -> np.ndarray:
    """Status words, four for each step that has some; those of loops that ask say where."""
    rows = np.zeros((len(polls), 4), np.int64)
    clear(rows)
    if any(polls):
        rows[list(polls), 2:] = _asked()
    return rows


def clear(rows: np.ndarray) -> None:
    """Reset the status words."""
    rows[:, :2] = 0, NO_NUMBER


def raise_caught(rows: np.ndarray) -> None:
    """Raise the exception of a signal handler, if that is why a loop ended.

    Raises:
        BaseException: The handler's exception; KeyboardInterrupt unless the program has installed a handler.
    """
    if not (rows[:, 0] == STATUS_LEFT).any():
        return
    clear(rows)
    caught = [ctypes.c_void_p(int(word) or None) for word in _record[CAUGHT // 8 :]]
    _record[CAUGHT // 8 :] = 0
    restore = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", ctypes.pythonapi))
    restore(*caught)

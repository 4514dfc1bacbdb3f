"""The code of the runtime: functions that run steps, enter programs and allocate results, in three modules.

It is shared by all programs of a process, because the spinning threads of several pools would compete for processors. It is
compiled once per process if llvmlite is available; modules that a package contains are used if none is loaded.

Python and this code share words: those of a pool's threads (the control block, steps, the state of a step, and its record), and
those of an interruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

STEPS, ENTRY, RESULT_MEMORY = "runtime", "entry", "result memory"

VERSION: Final = 4
"""Version of the interface between Python and this code: the words of a control block, of a step, of an entry, and the
functions' arguments. It is incremented when one of them changes, so that the code of an older package is not called."""

STEP_WORDS: Final = 4
"""Words of a step in a job: its function, the bytes from the table's start to its buffers, its parts, and bits: whether all
threads meet after it (`MEETS`), and whether the caller begins it (`CALLERS`), the only thread that may handle signals. A step
of 0 parts is run by the thread that ran the step before it, without a barrier in between."""

MEETS, CALLERS = 1, 2

RECORD_WORDS: Final = 3
"""Words that a thread writes of a step where a record is kept: nanoseconds when it began, when its share was done (0 if it had
none), when it went on after the barrier."""

# Byte offsets in the control block; words that different threads write are in separate cache lines.
GENERATION, GATE, JOB, TEAM, WORKERS = 0, 128, 256, 384, 576
BUSY = 64
"""Not 0 while the pool cannot be acquired: a run has it, or it has no threads."""
LINE = 64
HOME = 8
"""In a worker's line, after the mark that it is parked: the CPU that it was put on, or -1."""

STATE_BYTES: Final = 16
"""Bytes of the state of a step in a run: the claimed parts, and the number of completed ones."""

MAIN_THREAD, NEXT, CAUGHT, RECORD_BYTES = 0, 8, 16, 40
"""The record that `interrupted` and Python share, one per process: the main thread, when to look again, and an exception
as the interpreter puts it: type, value, traceback."""


class ProgramCode(Protocol):
    """Machine code in this process."""

    def address(self, function: str) -> int:
        """Return the address of a function; KeyError if no function has that name."""


codes: dict[str, ProgramCode] = {}
"""The loaded modules, by name."""


def bring(modules: Mapping[str, ProgramCode]) -> None:
    """Register the modules by name; modules that are already loaded are kept."""
    for name, code in modules.items():
        codes.setdefault(name, code)

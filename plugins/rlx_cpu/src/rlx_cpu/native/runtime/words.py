"""Words that native code and Python share: those of a pool's threads (the control block, steps, the state of a step, and its
record), and those of an interruption."""

from __future__ import annotations

from typing import Final

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

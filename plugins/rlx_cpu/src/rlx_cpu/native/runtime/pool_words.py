"""What the threads of a pool share, as words: the control block, steps, what is remembered of a step, and its record."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BUSY",
    "CALLERS",
    "GATE",
    "GENERATION",
    "HOME",
    "JOB",
    "LINE",
    "MEETS",
    "RECORD_WORDS",
    "STATE_BYTES",
    "STEP_WORDS",
    "TEAM",
    "WORKERS",
]

STEP_WORDS: Final = 4
"""Words of a step in a job: its function, the bytes from the table's start to its buffers, its parts, and bits: whether all
threads meet after it (`MEETS`), and whether the caller begins it (`CALLERS`), who alone may be the thread that is sent signals. A
step of 0 parts is done by whoever did the step before it, which then has no barrier in between."""

MEETS, CALLERS = 1, 2

RECORD_WORDS: Final = 3
"""Words that a thread writes of a step where a record is kept: nanoseconds when it began, when its share was done (0 if it had
none), when it went on after the barrier."""

# Byte offsets in the control block; what different threads write is a cache line apart.
GENERATION, GATE, JOB, TEAM, WORKERS = 0, 128, 256, 384, 576
BUSY = 64
"""Not 0 while the pool is nobody's to take: a run has it, or it has no threads."""
LINE = 64
HOME = 8
"""In a worker's line, after the mark that it is parked: the CPU that it was put on, or -1."""

STATE_BYTES: Final = 16
"""Of a step in a run: which parts are claimed, and how many are done."""

"""Runs of a reader over changed files, in processes of their own: each file is read, or refused with a typed error."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from rlx_core.errors import RlxError

SECONDS = 20
"""Processor time of one file, so that a busy machine finds no faults."""

OUTCOMES = ("read", "refused")


class TooSlow(BaseException):
    """A file took longer to read than it may."""


def outcome(read: Callable[[], object], *refusals: type[Exception]) -> str:
    """Return what becomes of a file: `read`, `refused`, or the fault.

    Args:
        refusals: Errors that refuse a file, in addition to those of rlx.
    """

    def late(signum: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        read()
        return "read"
    except (RlxError, *refusals):
        return "refused"
    except TooSlow:
        return f"more than {SECONDS} s"
    except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def count_faults(outcome_of: Callable[[int], str], count: int, seed: int, *, memory: int) -> int:
    """Read the files with the numbers from 0 to `count`, and print the faults; return their number.

    The end of a process is a fault too; another process reads the files after that one.

    Args:
        outcome_of: Changes and reads the file with a number.
        seed: What the faults are printed with.
        memory: Bytes of address space of a process.
    """
    kinds, faults, begun = Counter[str](), 0, time.perf_counter()
    at = mmap.mmap(-1, 8)
    number = 0
    while number < count:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            _work(outcome_of, range(number, count), at, theirs, memory)
        os.close(theirs)
        with os.fdopen(ours) as said:
            for line in said:
                kind, _, words = line.partition(" ")
                kinds[kind] += 1
                if kind == "fault":
                    faults += 1
                    print(f"seed {seed}, number {words}".replace("\x00", "\n"), flush=True)
        _, status = os.waitpid(child, 0)
        last = int.from_bytes(at[:8], "little")
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
            faults += 1
            kinds["ended"] += 1
            print(f"seed {seed}, number {last}: the process ended ({status})", flush=True)
        number = last + 1
    print(f"{count} files in {time.perf_counter() - begun:.0f} s: {dict(kinds)}")
    return faults


def _work(outcome_of: Callable[[int], str], numbers: range, at: mmap.mmap, said: int, memory: int) -> None:
    """Read files, writing what becomes of each, and end the process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    warnings.simplefilter("ignore")
    with os.fdopen(said, "w") as out:
        for number in numbers:
            at[:8] = number.to_bytes(8, "little")
            found = outcome_of(number)
            words = "" if found in OUTCOMES else f"{number}:\x00" + found.replace("\n", "\x00")
            out.write(f"{found if not words else 'fault'} {words}\n")
            out.flush()
    os._exit(0)

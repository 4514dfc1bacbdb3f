"""A line at a terminal during long work: the current task and its duration. It is erased at the end.

Nothing is written where the error stream is no terminal, nor before two seconds have passed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rlx_core.system.records import define

PATIENCE: Final = 2.0
"""Seconds before the line appears."""

_EVERY: Final = 0.25
_ERASE: Final = "\r\x1b[2K"
_owner = threading.Lock()  # of the terminal's last line: of several compilations at one time, the first has it


@define
class Phase:
    """The current phase of the work, set by the code that does it."""

    now: str = ""


@contextmanager
def progress(what: str, phase: Phase | None = None, patience: float = PATIENCE) -> Iterator[None]:
    """Show at a terminal that `what` is in progress, from `patience` seconds after the start of the block until its end."""
    stream = sys.stderr
    if not _is_terminal(stream):
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(stream, what, phase or Phase(), patience, done), name="rlx-progress", daemon=True
    )
    try:
        watcher.start()
    except RuntimeError:  # no thread available: the compilation matters, and the line does not
        yield
        return
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it was closed
        return False


def _watch(stream: TextIO, what: str, phase: Phase, patience: float, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(patience) or not _owner.acquire(blocking=False):
        return
    import shutil  # here, because it is needed where a line is shown

    try:
        with contextlib.suppress(OSError, ValueError):  # the terminal went away
            while True:
                text = f"{what}: {time.monotonic() - start:.0f} s{f', {phase.now}' if phase.now else ''}"
                stream.write(_ERASE + text[: shutil.get_terminal_size().columns - 1])
                stream.flush()
                if done.wait(_EVERY):
                    break
            stream.write(_ERASE)
            stream.flush()
    finally:
        _owner.release()

"""Subprocesses for work that may crash a process: they import the modules that this one imports."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def module_command(module: str, *words: str) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", module, *words]


def variables(**further: str) -> dict[str, str]:
    """Return the environment of a process with this one's import path: the command may run from a checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **further}


def cause(code: int) -> str:
    """Return a description of how a process ended."""
    with contextlib.suppress(ValueError):
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def started(command: Sequence[str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its children, which all end with the context."""
    is_posix = os.name == "posix"
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=is_posix,
        env=variables(PYTHONFAULTHANDLER="1"),
    )
    try:
        yield process
    finally:
        with contextlib.suppress(OSError):
            if is_posix:
                os.killpg(process.pid, signal.SIGKILL)
            elif process.poll() is None:
                process.kill()
        process.wait()

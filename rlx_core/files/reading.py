"""The bytes of a file: mapped, so that arrays in it take no private memory, or read into memory.

A page of a mapped file that was shortened since cannot be read: the operating system ends the process with SIGBUS. Small files
are therefore read, and `in_memory` reads the others too.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from rlx_core.ir.prefix import ALIGNMENT
from rlx_core.system.budget import current_work
from rlx_core.system.context import assigned

MAX_READ_NBYTES: Final = 1 << 20
"""Files of at most this many bytes are read: a copy of 1 MiB takes some 0.1 ms, and processes have little to share."""

_READS_ALL: ContextVar[bool] = ContextVar("files are read, not mapped", default=False)


def in_memory(enabled: bool = True) -> assigned[bool]:
    """Read every file that is opened in the block into memory, if `enabled` is true."""
    return assigned(_READS_ALL, enabled or _READS_ALL.get())


def mapped(path: Path) -> np.ndarray:
    """Return the bytes of a file, read-only. One that is mapped must not be shortened or changed while they are in use; replacing
    it is safe.

    Raises:
        OSError: The file cannot be read.
    """
    with open_regular(path) as file:
        return mapped_file(file)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file. Pipes, which may have no end or no writer, and devices are refused.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    # Non-blocking, because opening a pipe blocks until a writer opens it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield file


def mapped_file(file: BinaryIO) -> np.ndarray:
    """Return the same of a file that is open.

    Raises:
        BudgetError: Files of more bytes than allowed are read for one `rlx.load`.
    """
    nbytes = os.fstat(file.fileno()).st_size
    work = current_work()
    if work is not None:
        # A file that was opened by its number has no name.
        work.read(nbytes, "the file" if isinstance(file.name, int) else os.path.basename(os.fsdecode(file.name)))
    if nbytes <= MAX_READ_NBYTES or _READS_ALL.get():
        return aligned_copy(file.read())
    try:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except ValueError:  # it became empty in between, and nothing cannot be mapped
        return aligned_copy(b"")


def aligned_copy(data: bytes) -> np.ndarray:
    """Return a read-only copy of bytes in private memory with the alignment of a mapped file."""
    if not data:
        return np.frombuffer(b"", np.uint8)
    raw = np.empty(len(data) + ALIGNMENT, np.uint8)
    aligned = raw[-raw.ctypes.data % ALIGNMENT :][: len(data)]
    aligned[:] = np.frombuffer(data, np.uint8)
    return np.frombuffer(aligned.data.toreadonly(), np.uint8)  # no one can make this writable

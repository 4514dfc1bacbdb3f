"""Atomic replacement of a file: a reader sees the old contents or the new ones, never a part."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Chunk", "replace_file"]

Chunk = bytes | memoryview


def replace_file(path: Path, chunks: Iterable[Chunk], mode: int = 0o666) -> None:
    """Write `chunks` to a new file in the directory of `path`, sync it, and rename it to `path`.

    Args:
        mode: The maximum permissions of the file; the process's umask takes from that.

    Raises:
        OSError: The directory cannot be written to; `path` is unchanged, and no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    # Not `tempfile`, whose files only their owner may read: a saved file gets the permissions that `open` would give it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with open(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

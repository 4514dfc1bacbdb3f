"""Files that only this user can have written: rlx's own files that it trusts, and code that it is to execute; atomic writes.

One rule for all of them: they belong to this user (or to root), no other user may write to them or to their directory, and
symbolic links are not followed. Where the system has no owners and modes, nothing is checked.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlx_core.errors import CacheError, Fact

Chunk = bytes | memoryview

_HAS_OWNERS: Final = os.name == "posix"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_TEMPORARY: Final = ".tmp"
_WRITER: Final = re.compile(r"\.(\d+)\.[0-9a-f]{16}\.tmp$")
_GRACE: Final = 5.0
"""Seconds for which a temporary file is kept though its writer is not visible: it may be in another container."""
_ABANDONED_AFTER: Final = 3600.0
"""Seconds after which a temporary file counts as a killed writer's, even if some process has its number."""


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory of rlx's caches: `RLX_CACHE_DIR`, else `rlx` in the platform's cache directory."""
    env = os.environ if environment is None else environment
    if chosen := env.get("RLX_CACHE_DIR"):
        return Path(chosen).expanduser()
    base = Path(env.get("XDG_CACHE_HOME") or "")
    if base.is_absolute():  # the XDG specification requires a relative path there to be ignored
        return base / "rlx"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "rlx"
    if sys.platform == "win32":
        return Path(env.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "rlx" / "cache"
    return Path.home() / ".cache" / "rlx"


def is_foreign(status: os.stat_result) -> bool:
    """Return whether something is neither this user's nor root's."""
    return _HAS_OWNERS and status.st_uid not in (os.geteuid(), 0)


def reason_against(status: os.stat_result) -> str | None:
    """Return why a file cannot be trusted, as the end of a sentence about it, or `None`."""
    if not _HAS_OWNERS:
        return None
    if is_foreign(status):
        return f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # on a file it does not prevent writing
    if status.st_mode & _OTHERS_WRITE and not is_sticky:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def own_directory(directory: Path) -> None:
    """Make a directory that is this user's alone, below one in which no other user can replace it.

    Raises:
        CacheError: It cannot be made, belongs to another user, is open to others, or is a link; or the one above is not safe.
    """
    try:
        # One after the other, because `parents` creates directories with the default mode.
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        status, above = os.lstat(directory), os.stat(directory.parent)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CacheError(f"cache: {directory} cannot be used ({reason})", Fact("directory", directory)) from error
    if not stat.S_ISDIR(status.st_mode):
        raise CacheError(f"cache: {directory} is {'a link' if stat.S_ISLNK(status.st_mode) else 'no directory'}")
    if not _HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        raise CacheError(f"cache: {directory} belongs to user {status.st_uid}, not to {os.getuid()}")
    if status.st_mode & 0o077:
        raise CacheError(
            f"cache: {directory} is open to others (mode {stat.S_IMODE(status.st_mode):o}, not 700)",
            hint=f"chmod 700 {directory}",
        )
    reason = reason_against(above)
    if reason is not None:
        raise CacheError(
            f"cache: {directory.parent} {reason}", hint=f"chmod go-w {directory.parent}, or set RLX_CACHE_DIR"
        )


def read_own(path: Path, max_nbytes: int) -> bytes:
    """The bytes of a file that this user wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: It is no plain file, may be another's, or has more bytes than that.
    """
    # Without O_NONBLOCK, opening a pipe in its place would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a plain file")
        if _HAS_OWNERS and status.st_uid != os.geteuid():
            raise OSError(f"it belongs to user {status.st_uid}")
        reason = reason_against(status)
        if reason is not None:
            raise OSError(f"it {reason}")
        if status.st_size > max_nbytes:
            raise OSError(f"it has {status.st_size} bytes, more than may be there ({max_nbytes})")
        return file.read()


def write_own(path: Path, *chunks: bytes) -> None:
    """Write a file for this user alone; see `replace_file`."""
    replace_file(path, chunks, 0o600)


def replace_file(path: Path, chunks: Iterable[Chunk], mode: int = 0o666) -> None:
    """Write a file atomically: a reader sees the old contents or the new ones, never a part.

    Args:
        path: The file. A new one is written next to it, synced, and renamed.
        chunks: The contents.
        mode: The maximum permissions of the file; the process's umask takes from that.

    Raises:
        OSError: The directory cannot be written to; `path` is unchanged, and no temporary file is left.
    """
    # Not `tempfile`, whose files only their owner may read: a saved file gets the permissions that `open` would give it.
    temporary = path.with_name(f".{path.name[:16]}.{os.getpid()}.{os.urandom(8).hex()}{_TEMPORARY}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flags("O_NOFOLLOW", "O_BINARY"), mode)
    try:
        with open(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def is_temporary(name: str) -> bool:
    """Return whether a file is one that its writer has not renamed yet."""
    return name.startswith(".") and name.endswith(_TEMPORARY)


def is_abandoned(name: str, status: os.stat_result) -> bool:
    """Return whether the writer of a temporary file was killed."""
    age = time.time() - status.st_mtime
    return age > _ABANDONED_AFTER or (age > _GRACE and not _is_running(name))


def _is_running(name: str) -> bool:
    """Return whether the process whose number is in a temporary file's name may still be writing it."""
    writer = _WRITER.search(name)
    if writer is None or os.name != "posix":
        return True
    if int(writer[1]) == os.getpid():
        return True
    try:
        os.kill(int(writer[1]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's, so no writer of ours
        return False
    return True


def _flags(*names: str) -> int:
    """The flags of `os.open` that this platform has."""
    return sum(vars(os).get(name, 0) for name in names)


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return  # elsewhere directories cannot be opened, and renaming is durable by itself or not at all
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except PermissionError:
        return  # files can be made in a directory that cannot be read
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

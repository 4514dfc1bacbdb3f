"""The compile cache's files: one per entry, each complete or absent, in a directory that is its owner's alone.

An entry is a magic number, its key, its length, a checksum and the payload. It is written to a temporary file, synced and
renamed, so that a process killed at any moment leaves either the old entry, the new one, or a temporary file that is never
read. Reading trusts nothing: a file in which any bit changed since it was written is no entry. There are no locks; writers
of one key write the same bytes, and renaming decides which copy stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attrs import field

from rlx_core.errors import CacheError
from rlx_core.system.private import cache_directory, is_abandoned, is_temporary, own_directory, read_own, write_own
from rlx_core.system.records import define

MAGIC: Final = b"RLXCACH1"
_HEADER: Final = struct.Struct("<8s32sQ32s")  # magic, key, payload bytes, checksum of the three and the payload
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".rlx"
_FAULTS_KEPT: Final = 32
_UNLISTED: Final = 16
"""Fraction of the limit, as its denominator, that is written before the directory is listed again."""


@define
class DiskCounts:
    """Counters of file operations so far, and descriptions of the last faults."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    evicted: int = 0
    rejected: int = 0
    faults: list[str] = field(factory=list)

    def fault(self, what: str) -> None:
        self.faults.append(what)
        del self.faults[:-_FAULTS_KEPT]


class DiskCache:
    """Bytes by hex digest, in files; at most `max_nbytes` in all, those included that are being written;
    the ones unused for longest go first.

    To list the files takes longer the more there are, so it is done for the first entry, before the limit is exceeded as far
    as this object knows, and after each `_UNLISTED`-th of the limit: what other processes write meanwhile may exceed it by
    that much for each of them.

    Neither `get` nor `put` raises for any error of the file system: an unreadable file is a miss, an entry that cannot be
    written is not kept, and `counts` has the reason.

    Raises:
        CacheError: The directory cannot be made, belongs to another user, or is open to others.
    """

    def __init__(self, directory: Path | str | None = None, *, max_nbytes: int = 1 << 30) -> None:
        self.directory = Path(cache_directory() if directory is None else directory)
        self.max_nbytes = max_nbytes
        self.counts = DiskCounts()
        self._listed: int | None = None  # bytes of the entries when they were listed last
        self._written = 0  # bytes since then
        own_directory(self.directory)

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key`, or `None`; a damaged entry is removed."""
        path = self._path(key)
        try:
            data = read_own(path, self.max_nbytes)
        except FileNotFoundError:
            self.counts.misses += 1
            return None
        except OSError as error:
            self.counts.misses += 1
            self.counts.fault(f"read {path.name}: {error}")
            return None
        payload, reason = _payload(key, data)
        if payload is None:
            self.counts.misses += 1
            self.drop(key, reason)
            return None
        self.counts.hits += 1
        with contextlib.suppress(OSError):  # a read-only directory keeps no record of use
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key`; return whether that succeeded."""
        path = self._path(key)
        if _HEADER.size + len(payload) > self.max_nbytes:
            self.counts.fault(f"write {path.name}: {len(payload)} bytes are more than the cache may hold")
            return False
        try:
            write_own(path, _header(key, payload), payload)
        except OSError as error:
            self.counts.fault(f"write {path.name}: {error}")
            return False
        self.counts.stored += 1
        self._written += _HEADER.size + len(payload)
        if self._is_to_be_listed():
            self._evict(keep=path)
        return True

    def drop(self, key: str, reason: str) -> None:
        """Remove an unusable entry."""
        self.counts.rejected += 1
        self.counts.fault(f"entry {key[:16]}: {reason}")
        self._remove(self._path(key))  # if it stays, it is refused again

    def keys(self) -> list[str]:
        """Return the keys of all entries, sorted."""
        return sorted(path.name.removesuffix(_SUFFIX) for path, _ in self._entries())

    @property
    def nbytes(self) -> int:
        """The bytes that entries take."""
        return sum(status.st_size for _, status in self._entries())

    def clear(self) -> None:
        """Remove all entries."""
        for path, _ in self._entries():
            self._remove(path)

    # --------------------------------------------------------------------------------------- details

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise CacheError(f"cache: a key is 64 hex digits, not {key!r}")
        return self.directory / f"{key}{_SUFFIX}"

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield entries and temporary files with their status."""
        try:
            with os.scandir(self.directory) as entries:
                names = [each.path for each in entries if each.name.endswith(_SUFFIX) or is_temporary(each.name)]
        except OSError as error:
            self.counts.fault(f"list {self.directory}: {error}")
            return
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process evicts too
                yield Path(name), os.lstat(name)

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        return (each for each in self._files() if not is_temporary(each[0].name))

    def _remove(self, path: Path) -> bool:
        """Remove a file; return whether it no longer exists."""
        try:
            path.unlink(missing_ok=True)  # another process evicts too
        except OSError as error:
            self.counts.fault(f"remove {path.name}: {error}")
            return False
        return True

    def _is_to_be_listed(self) -> bool:
        return (
            self._listed is None
            or self._written > self.max_nbytes // _UNLISTED
            or self._listed + self._written > self.max_nbytes
        )

    def _evict(self, keep: Path) -> None:
        """Remove the abandoned files of killed writers, then the least recently used entries above the limit."""
        # Before listing: files that another thread writes meanwhile may be counted twice, and are not forgotten.
        self._written = 0
        entries, total = [], 0
        for path, status in self._files():
            if is_temporary(path.name):
                if is_abandoned(path.name, status) and self._remove(path):
                    continue
            else:
                entries.append((path, status))
            total += status.st_size
        for path, status in sorted(entries, key=lambda e: (e[1].st_mtime_ns, e[0].name)):
            if total <= self.max_nbytes:
                break
            if path == keep:
                continue
            if self._remove(path):
                self.counts.evicted += 1
                total -= status.st_size
        self._listed = total


def _checksum(key: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(MAGIC + key + struct.pack("<Q", len(payload)) + payload).digest()


def _header(key: str, payload: bytes) -> bytes:
    raw = bytes.fromhex(key)
    return _HEADER.pack(MAGIC, raw, len(payload), _checksum(raw, payload))


def _payload(key: str, data: bytes) -> tuple[bytes | None, str]:
    """Return the payload of a file's bytes and an empty text, or `None` and a description of the fault."""
    if len(data) < _HEADER.size:
        return None, f"it has {len(data)} bytes, a header has {_HEADER.size}"
    magic, raw, length, checksum = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != MAGIC:
        return None, "it is not an entry of this format"
    if raw != bytes.fromhex(key):
        return None, f"it was stored under {raw.hex()[:16]}"
    if length != len(payload):
        return None, f"its payload has {len(payload)} bytes, the header says {length}"
    if checksum != _checksum(raw, payload):
        return None, "its checksum differs"
    return payload, ""

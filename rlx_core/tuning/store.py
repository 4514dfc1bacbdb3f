"""Choices on disk: one JSON line for each problem, machine and version, in the cache directory of this user.

The file is replaced as a whole, atomically, with what other processes have added since it was read; a lock of the operating
system keeps two writers from losing each other's choices. Lines of another form are ignored, as is a file that is not this
user's: the problems are then measured again, or have their default schedules.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlx_core.errors import CacheError
from rlx_core.system.locks import Lock
from rlx_core.system.private import cache_directory, own_directory
from rlx_core.system.record_files import read_records, write_records
from rlx_core.system.records import frozen

if sys.platform != "win32":
    import fcntl

FILE: Final = "choices.jsonl"
"""The file, in the folder `tuning` of the cache directory."""


@frozen
class StoredChoice:
    """The result of a measurement. All fields are numbers and texts, as the file has them.

    Attributes:
        problem: The problem's line.
        machine: The machine's line.
        version: The version of the problem's candidates.
        candidate: The name of the selected candidate.
        default: The name of the default at the time.
        median_us, spread_us: Median time of the selected candidate and its interquartile range, in microseconds.
        default_us, default_spread_us: The same of the default.
        rounds: Samples of the selected candidate.
    """

    problem: str
    machine: str
    version: str
    candidate: str
    default: str
    median_us: float
    spread_us: float
    default_us: float
    default_spread_us: float
    rounds: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The choice's identity in a store."""
        return self.problem, self.machine, self.version

    @property
    def times(self) -> str:
        """The measured times as text."""
        times = (self.median_us, self.spread_us), (self.default_us, self.default_spread_us)
        selected, default = (f"{t:.1f} ± {s:.1f} us" for t, s in times)
        return selected if self.candidate == self.default else f"{selected}, default {default}"


class ChoiceStore:
    """The choices of a file.

    A process reads the file once, at the first look-up: what other processes write meanwhile does not change the schedules of
    programs that this one compiles.

    Args:
        path: The file; by default the one in this user's cache directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path
        self._choices: dict[tuple[str, str, str], StoredChoice] | None = None
        self._lock = Lock("tuned choices")

    def get(self, problem: str, machine: str, version: str) -> StoredChoice | None:
        """Return the choice for a problem on a machine, or `None`."""
        return self._loaded().get((problem, machine, version))

    def choices(self) -> list[StoredChoice]:
        """Return all choices, sorted by machine and problem."""
        return sorted(self._loaded().values(), key=lambda each: (each.machine, each.problem, each.version))

    def put(self, choice: StoredChoice) -> None:
        """Add a choice, or replace the one for the same problem, machine and version.

        A file that cannot be written is reported by a warning; the choice then serves this process.
        """
        with self._lock:
            # A new dictionary, because other threads may be iterating over the present one.
            self._choices = {**self._loaded(), choice.key: choice}
        try:
            with self._exclusive():
                current = {each.key: each for each in read_records(self.path, StoredChoice)}
                write_records(self.path, (current | {choice.key: choice}).values())
        except (CacheError, OSError) as error:
            reason = error.message if isinstance(error, CacheError) else str(error)
            warnings.warn(f"tuned choices are not kept on disk: {reason}", RuntimeWarning, stacklevel=2)

    def clear(self) -> int:
        """Remove all choices and return their number.

        Raises:
            CacheError, OSError: The file cannot be written, or others can write to its directory.
        """
        if not os.path.lexists(self.path):
            return 0
        with self._exclusive():
            count = len(read_records(self.path, StoredChoice))
            write_records(self.path, ())
        with self._lock:
            self._choices = {}
        return count

    def digest(self, machine: str) -> str:
        """Return the digest of the choices for a machine: the store's part of the keys of caches."""
        rows = sorted((*each.key, each.candidate) for each in self._loaded().values() if each.machine == machine)
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    def _loaded(self) -> dict[tuple[str, str, str], StoredChoice]:
        with self._lock:
            if self._choices is None:
                self._choices = {each.key: each for each in read_records(self.path, StoredChoice)}
            return self._choices

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep other processes from writing meanwhile."""
        own_directory(self.path.parent)
        if sys.platform == "win32":  # without such locks; the last of two writers then decides which choices are kept
            yield
            return
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def default_path() -> Path:
    """Return the file of this user's cache directory."""
    return cache_directory() / "tuning" / FILE


_stores: Final[dict[Path, ChoiceStore]] = {}


def default_store() -> ChoiceStore:
    """Return this process's store of the file in this user's cache directory."""
    path = default_path()
    return _stores[path] if path in _stores else _stores.setdefault(path, ChoiceStore(path))

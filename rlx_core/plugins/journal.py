"""Failures of contributions at use: this process's, and on disk those of earlier ones, for `rlx doctor`.

The file is a JSON line for each failure in the cache directory. A failure is listed as long as the same version of its plugin is
installed; updating the plugin, or removing the file, removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from attrs import asdict

from rlx_core.errors import CacheError
from rlx_core.system.private import cache_directory, own_directory, read_own, write_own
from rlx_core.system.records import frozen

__all__ = ["MAX_FAILURES", "UseFailure", "journal_file", "recorded", "remember"]

MAX_FAILURES: Final = 100
"""Failures that the file holds; the oldest are dropped."""

MAX_NBYTES: Final = 1 << 20
"""Bytes of the file that are read; a longer one is not ours."""


@frozen
class UseFailure:
    """A contribution that raised when it was used.

    Attributes:
        plugin, distribution, version: Who contributed it.
        record: Its kind and name: `kernel acme.native_exp`.
        reason: The step and the exception, in one line.
        where: The line that raised.
        mend: What to do about it.
    """

    plugin: str
    distribution: str
    version: str
    record: str
    reason: str
    where: str = ""
    mend: str = ""


_known: dict[UseFailure, None] = {}


def journal_file() -> Path:
    """The file that holds the failures of all processes."""
    return cache_directory() / "plugin-failures.jsonl"


def remember(failure: UseFailure, *, is_installed: bool) -> None:
    """Record a failure, once a process.

    Args:
        is_installed: Whether the plugin is one that the next process finds too; otherwise nothing is written to disk.
    """
    if failure in _known:
        return
    _known[failure] = None
    if not is_installed:
        return
    path = journal_file()
    stored = [each for each in _stored() if each != failure]
    lines = [json.dumps(asdict(each), sort_keys=True) for each in [*stored, failure][-MAX_FAILURES:]]
    try:
        own_directory(path.parent)
        write_own(path, ("\n".join(lines) + "\n").encode())
    except (OSError, CacheError):
        # The failure itself is about to be raised or warned of; a cache directory that cannot be written has its own finding.
        return


def recorded(versions: Iterable[tuple[str, str]]) -> list[UseFailure]:
    """The failures of this process and those on disk, of plugins in these versions: (distribution, version)."""
    current = frozenset(versions)
    found = dict.fromkeys([*_stored(), *_known])
    return [each for each in found if (each.distribution, each.version) in current]


def _stored() -> list[UseFailure]:
    """The failures on disk; lines that are none of ours are not listed."""
    try:
        lines = read_own(journal_file(), MAX_NBYTES).decode("utf-8").splitlines()
    except (OSError, CacheError, UnicodeDecodeError):  # not there, or not this user's: then nothing is known
        return []
    return [each for each in map(_parsed, lines) if each is not None]


def _parsed(line: str) -> UseFailure | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    names = frozenset(asdict(UseFailure("", "", "", "", "")))
    if not isinstance(fields, dict) or fields.keys() != names or not all(isinstance(v, str) for v in fields.values()):
        return None
    return UseFailure(**fields)

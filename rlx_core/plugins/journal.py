"""Failures of contributions at use: this process's, and on disk those of earlier ones, for `rlx doctor`.

The file is a JSON line for each failure in the cache directory. A failure is listed as long as the same version of its plugin is
installed; updating the plugin, or removing the file, removes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rlx_core.errors import CacheError
from rlx_core.system.private import cache_directory
from rlx_core.system.record_files import read_records, write_records
from rlx_core.system.records import frozen

MAX_FAILURES: Final = 100
"""Maximum number of failures in the file; the oldest are dropped."""


@frozen
class UseFailure:
    """A contribution that raised when it was used.

    Attributes:
        plugin, distribution, version: The contributor.
        record: Its kind and name: `kernel acme.native_exp`.
        reason: The step and the exception, in one line.
        where: The line that raised.
        mend: The suggested fix.
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
    """Record a failure, once per process.

    Args:
        is_installed: Whether the plugin is one that the next process finds too; otherwise nothing is written to disk.
    """
    if failure in _known:
        return
    _known[failure] = None
    if not is_installed:
        return
    stored = [each for each in _stored() if each != failure]
    try:
        write_records(journal_file(), [*stored, failure][-MAX_FAILURES:])
    except (OSError, CacheError):
        # The failure itself is about to be raised or warned of; an unwritable cache directory is reported separately.
        return


def recorded(versions: Iterable[tuple[str, str]]) -> list[UseFailure]:
    """The failures of this process and those on disk, of plugins in these versions: (distribution, version)."""
    current = frozenset(versions)
    entries = dict.fromkeys([*_stored(), *_known])
    return [each for each in entries if (each.distribution, each.version) in current]


def _stored() -> list[UseFailure]:
    return read_records(journal_file(), UseFailure)

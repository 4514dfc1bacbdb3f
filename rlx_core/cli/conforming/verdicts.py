"""Conformance verdicts of targets on disk, for `rlx doctor`: the latest of each target, with the versions that it is about."""

from __future__ import annotations

from pathlib import Path

from rlx_core.system.private import cache_directory
from rlx_core.system.record_files import read_records, write_records
from rlx_core.system.records import frozen


@frozen
class Conformance:
    """The verdict of one run of `rlx conform`.

    Attributes:
        plugin, distribution, version: The owner of the target.
        core: The version of rlx-core.
        level: The highest level that the target conforms to; "none" if it conforms to none.
        passed, failed, host: Numbers of law cases that passed and failed, and of ops that run on the host.
    """

    target: str
    plugin: str
    distribution: str
    version: str
    core: str
    level: str
    passed: int
    failed: int
    host: int


def conformance_file() -> Path:
    """Path of the file that holds the latest verdict of each target."""
    return cache_directory() / "conformance.jsonl"


def store_verdict(verdict: Conformance) -> None:
    """Write a verdict in place of an earlier one of the same target.

    Raises:
        CacheError, OSError: The cache directory cannot be written.
    """
    others = [each for each in recorded_verdicts() if each.target != verdict.target]
    write_records(conformance_file(), [*others, verdict])


def recorded_verdicts() -> list[Conformance]:
    """Return the verdicts on disk."""
    return read_records(conformance_file(), Conformance)

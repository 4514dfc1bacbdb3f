"""Conformance verdicts of targets on disk, for `rlx doctor`: the latest of each target, with the versions that it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from attrs import asdict

from rlx_core.errors import CacheError
from rlx_core.system.private import cache_directory, own_directory, read_own, write_own
from rlx_core.system.records import frozen

__all__ = ["Conformance", "conformance_file", "recorded_verdicts", "store_verdict"]

MAX_NBYTES: Final = 1 << 20
"""Bytes of the file that are read; a longer one is not ours."""


@frozen
class Conformance:
    """The verdict of one run of `rlx conform`.

    Attributes:
        plugin, distribution, version: Who contributes the target.
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
    path = conformance_file()
    others = [each for each in recorded_verdicts() if each.target != verdict.target]
    own_directory(path.parent)
    lines = [json.dumps(asdict(each), sort_keys=True) for each in [*others, verdict]]
    write_own(path, ("\n".join(lines) + "\n").encode())


def recorded_verdicts() -> list[Conformance]:
    """The verdicts on disk; lines of another form are not listed."""
    try:
        lines = read_own(conformance_file(), MAX_NBYTES).decode("utf-8").splitlines()
    except (OSError, CacheError, UnicodeDecodeError):  # absent, or another user's: then there is no verdict
        return []
    return [each for each in map(_parsed, lines) if each is not None]


def _parsed(line: str) -> Conformance | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    names = {"passed": int, "failed": int, "host": int}
    expected = {key: names.get(key, str) for key in asdict(Conformance("", "", "", "", "", "", 0, 0, 0))}
    if not isinstance(fields, dict) or fields.keys() != expected.keys():
        return None
    return Conformance(**fields) if all(isinstance(fields[k], t) for k, t in expected.items()) else None

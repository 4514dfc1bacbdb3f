"""Stamps: the part of a cache key that identifies the code of packages.

A stamp changes when a file of a package does. Changes are detected as Python detects stale bytecode, by size and modification
time: reading all files would take longer than a cache saves.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType

from rlx_core.plugins.entry import PluginEntry, PluginOrigin

IGNORED = frozenset({"__pycache__"})


def stamp_of(packages: Iterable[str]) -> str | None:
    """The digest of some top-level packages' files; `None` if one has no files that could be looked at."""
    stamps = {package: package_stamp(package) for package in sorted(set(packages))}
    if None in stamps.values():
        return None
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


@cache
def package_stamp(package: str) -> str | None:
    """Return the digest of one package's files, as of the first call in this process; `None` if it is no folder."""
    if not package:
        return None
    module = sys.modules.get(package)
    try:
        spec = importlib.util.find_spec(package) if module is None else module.__spec__
    except (ImportError, ValueError):
        return None
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        return None
    try:
        files = [(place, sorted(files_in(place))) for place in places]
    except OSError:
        return None
    return hashlib.sha256(repr(files).encode()).hexdigest()


def files_in(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of change of every file in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name not in IGNORED:
                    yield from files_in(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def package_of(defined: object) -> str:
    """The top-level package that a class or a function is defined in."""
    return str(getattr(defined, "__module__", "")).partition(".")[0]


def packages_of(entries: Iterable[PluginEntry]) -> Iterator[str]:
    """Yield the top-level packages of plugins; an empty name for one that is in no package."""
    for entry in entries:
        if entry.origin is PluginOrigin.NAMED or (
            entry.plugin is not None and not isinstance(entry.plugin, ModuleType)
        ):
            yield ""
        else:
            name = entry.module if entry.plugin is None else vars(entry.plugin).get("__name__", "")
            yield str(name).partition(":")[0].partition(".")[0]

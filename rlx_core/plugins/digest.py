"""Digests of records, from which the registry's hash is computed, and stamps, the digests of packages' files in cache keys.

The digest of a record covers all its fields and the distribution and version that contributed it; nothing that differs
between two machines with the same packages (paths, the order of installation, Python's hash seed).

A stamp changes when a file of a package does. Changes are detected as Python detects stale bytecode, by size and modification
time: reading all files would take longer than a cache saves.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import attrs

from rlx_core.contributions import Contribution, LazyRef
from rlx_core.errors import PluginError
from rlx_core.plugins.entry import PluginEntry, PluginOrigin, normalized

IGNORED = frozenset({"__pycache__"})


def record_digest(record: Contribution, entry: PluginEntry) -> str:
    """Return the digest of one record of a plugin."""
    owner = [entry.name, normalized(entry.distribution), entry.version]
    return sha256([type(record).__name__, owner, fields_of(record)])


def sha256(content: object) -> str:
    """Return the digest of a JSON value, in its one canonical spelling."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: object) -> Any:
    """Return a field's value as JSON; types that JSON would confuse are tagged."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}  # 1.0 is not 1, and no digit is lost
    if isinstance(value, LazyRef):
        return {"reference": str(value)}
    if attrs.has(type(value)):
        return {"record": fields_of(value)}
    if isinstance(value, type):
        return {"type": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, Mapping):
        return {"table": {key: canonical(each) for key, each in value.items()}}
    if isinstance(value, Iterable):
        return [canonical(each) for each in value]
    raise PluginError(f"a record holds a {type(value).__name__}, which cannot be hashed the same way everywhere")


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record as JSON, by name."""
    return {each.name: canonical(getattr(record, each.name)) for each in attrs.fields(type(record))}


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

"""The index: which plugins are installed, read from packaging metadata alone and remembered on disk.

A scan reads the entry points of every installed distribution, which takes tens of milliseconds in a large
environment; the remembered index takes about one. It is only a copy: if anything is wrong with it, rlx scans.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import asdict
from attrs.filters import exclude

from rlx_core.errors import CacheError, nearest
from rlx_core.hooks import API_VERSION
from rlx_core.plugins.entry import CORE, PluginEntry, PluginOrigin, builtin_entry, normalized
from rlx_core.system.private import cache_directory, is_abandoned, is_temporary, own_directory, read_own, write_own
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

WORD: Final = "rlx"
GROUP: Final = "rlx.plugins"
WHEN_GROUP: Final = "rlx.when"
FORMAT: Final = 3  # part of the key, so that an rlx with another layout never reads this one's files
MIN_AGE_SECONDS: Final = 2.0  # seconds; a directory changed this recently may change again within one clock tick
LARGEST: Final = 1 << 26  # bytes of a file; the index of a thousand plugins has less than a hundredth of them
MAX_FILES: Final = 32  # files, one per set of import paths
METADATA: Final = (".dist-info", ".egg-info", "EGG-INFO")


@frozen
class PluginIndex:
    """The installed plugins in a fixed order, and the faults in the metadata of others."""

    entries: tuple[PluginEntry, ...]
    faults: tuple[str, ...] = ()


def installed_plugins(path: Sequence[str] | None = None, cache: Path | None = None) -> PluginIndex:
    """The index for `path` (default: `sys.path`), from disk if nothing has changed since it was written."""
    search = list(sys.path if path is None else path)
    try:
        directory = (cache_directory() if cache is None else cache) / "plugins"
    except RuntimeError:  # no home directory, as in a container whose user has no name
        return scan(search)[0]
    stamps = {place: stamp(place) for place in search if holds_metadata(place)}
    file = directory / f"index-{digest(stamps)}.json"
    remembered = read(file)
    if remembered is not None:
        return remembered
    index, sources = scan(search)
    newest = max((each for each in stamps.values() if each is not None), default=0)
    if newest < (time.time() - MIN_AGE_SECONDS) * 1e9:
        write(file, index, {source: stamp(source) for source in sources})
    return index


# Installed distributions.


def scan(path: list[str]) -> tuple[PluginIndex, list[str]]:
    """Read the metadata of everything on `path`; also returns the files on which the result depends."""
    # Imported here because reading the cached index does not need it.
    from importlib.metadata import distributions

    entries: list[PluginEntry] = []
    faults: list[str] = []
    sources: list[str] = []
    seen: set[str] = set()
    for distribution in distributions(path=path):
        try:
            text = distribution.read_text("entry_points.txt") or ""
            if WORD not in text:
                continue
            faults += [f"{metadata_place(distribution)}/entry_points.txt: {fault}" for fault in malformed(text)]
            points = [point for point in distribution.entry_points if point.group in (GROUP, WHEN_GROUP)]
            if not points:
                continue
            name = normalized(distribution.metadata["Name"])
            if name not in seen:  # the first on the path is the one that Python imports
                entries += entries_of(distribution, points)
                sources += metadata_files(distribution)
            seen.add(name)
        except MemoryError:
            raise  # not a fault of the distribution
        except Exception as error:  # noqa: BLE001 - one damaged distribution must not hide the others
            faults.append(f"{metadata_place(distribution)}: {type(error).__name__}: {error}")
    if not any(entry.origin is PluginOrigin.BUILTIN for entry in entries):
        entries.append(builtin_entry())
    return PluginIndex(tuple(sorted(entries, key=lambda entry: entry.key)), tuple(sorted(faults))), sources


def malformed(text: str) -> Iterator[str]:
    """Yield the faults of an entry-point file that mentions rlx: Python skips lines that it cannot parse."""
    section = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            if section.partition(".")[0] == WORD and section not in (GROUP, WHEN_GROUP):
                hint = nearest(section, (GROUP, WHEN_GROUP)) or "it is passed over"
                yield f"line {number}: rlx reads no group `{section}`; {hint}"
        elif line.startswith("["):
            section = None
            yield f"line {number}: `{line}` is no group in brackets"
        elif "=" not in line or section is None:
            yield f"line {number}: `{line}` is no `name = module` in a group"


def entries_of(distribution: Distribution, points: Iterable[EntryPoint]) -> list[PluginEntry]:
    """The plugins of one distribution, with the conditions that its second group declares for each."""
    name = distribution.metadata["Name"]
    conditions: dict[str, set[str]] = {}
    plugins: dict[str, str] = {}
    for point in points:
        if point.group == WHEN_GROUP:
            conditions.setdefault(point.value, set()).add(point.name)
        else:
            plugins[point.name] = point.value
    is_core = normalized(name) == CORE
    return [
        PluginEntry(
            plugin,
            module,
            name,
            distribution.version,
            () if is_core else core_requirements(distribution.requires or ()),
            tuple(sorted(conditions.get(module, ()))),
            metadata_place(distribution),
            origin=PluginOrigin.BUILTIN if is_core else PluginOrigin.INSTALLED,
            others=() if is_core else tuple(sorted(other_requirements(distribution.requires or ()))),
        )
        for plugin, module in plugins.items()
    ]


def core_requirements(requires: Iterable[str]) -> tuple[str, ...]:
    """Return the requirements on rlx-core."""
    result = []
    for text in requires:
        name = text.strip()
        for index, letter in enumerate(name):
            if not (letter.isalnum() or letter in "-_."):
                name = name[:index]
                break
        if normalized(name) == CORE:
            result.append(text)
    return tuple(sorted(result))


def other_requirements(requires: Iterable[str]) -> set[str]:
    """Return the requirements on a version of another distribution: one of them may have plugins."""
    core = set(core_requirements(requires))
    return {text for text in requires if text not in core and any(letter in text for letter in "<>=~")}


def metadata_place(distribution: Distribution) -> str:
    """The directory of a distribution's metadata."""
    return str(distribution.locate_file("")) if not hasattr(distribution, "_path") else str(distribution._path)


def metadata_files(distribution: Distribution) -> list[str]:
    """The files that a reinstallation in place would change without touching the directory above."""
    place = Path(metadata_place(distribution))
    return [str(place / name) for name in ("METADATA", "PKG-INFO", "entry_points.txt") if (place / name).exists()]


# The copy on disk.


def holds_metadata(place: str) -> bool:
    """Return whether any distribution is installed in a directory.

    The directory of a script or of a project is on `sys.path` too, and changes whenever a file in it is
    saved; left out of the key, it neither invalidates the cached index nor adds another file.
    """
    try:
        with os.scandir(place or os.curdir) as names:
            return any(name.name.endswith(METADATA) for name in names)
    except NotADirectoryError:
        return True  # a zip archive, which may hold metadata; only its time is checked
    except OSError:
        return False


def stamp(place: str) -> int | None:
    """Return when a directory or file last changed, in nanoseconds, or `None` if it does not exist."""
    try:
        return os.stat(place or os.curdir).st_mtime_ns
    except OSError:
        return None


def digest(stamps: dict[str, int | None]) -> str:
    """Return the key of an index: the import paths, their modification times, and the versions of Python and rlx."""
    where = [[os.path.abspath(place), when] for place, when in stamps.items()]
    what = [FORMAT, API_VERSION, list(sys.version_info[:3]), sys.prefix, where]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def read(file: Path) -> PluginIndex | None:
    """Return the cached index, or `None` where it is missing, damaged, not ours alone, or older than its sources."""
    try:
        own_directory(file.parent)
        content = json.loads(read_own(file, LARGEST))
        if content["key"] != file.stem:
            return None
        if any(stamp(source) != when for source, when in content["sources"].items()):
            return None
        return PluginIndex(tuple(entry_from(row) for row in content["entries"]), tuple(map(str, content["faults"])))
    except (OSError, CacheError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def entry_from(row: dict[str, Any]) -> PluginEntry:
    """Return one entry of a cached index; a field of the wrong type makes the whole index unreadable."""
    row = {**row, "requires": tuple(row["requires"]), "others": tuple(row["others"]), "when": tuple(row["when"])}
    texts = ("name", "module", "distribution", "version", "file")
    if not all(isinstance(row[label], str) for label in texts):
        raise TypeError("index: a field is not text")
    return PluginEntry(**row)


def write(file: Path, index: PluginIndex, sources: dict[str, int | None]) -> None:
    """Write an index to the cache; a failure only costs the next process a scan."""
    rows = [asdict(entry, filter=exclude("plugin"), recurse=False) for entry in index.entries]
    content = json.dumps({"key": file.stem, "entries": rows, "faults": index.faults, "sources": sources})
    with contextlib.suppress(OSError, CacheError):
        own_directory(file.parent)
        write_own(file, content.encode())
        forget_oldest(file.parent)


def forget_oldest(directory: Path) -> None:
    """Keep the newest few files; a process that reads one of the others meanwhile scans again."""
    files = sorted(directory.glob("index-*.json"), key=lambda each: each.stat().st_mtime_ns)
    for file in files[:-MAX_FILES]:
        file.unlink(missing_ok=True)
    for file in directory.iterdir():
        if is_temporary(file.name) and is_abandoned(file.name, file.lstat()):
            file.unlink(missing_ok=True)

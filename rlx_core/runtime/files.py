"""`rlx.load` and `rlx.save`: the suffix of a file says which plugin reads or writes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlx_core.contributions import Contribution
from rlx_core.errors import FileError, PluginError, nearest
from rlx_core.pipeline.contributed import expectation
from rlx_core.plugins import PluginHost, default_host

__all__ = ["load", "reading", "save", "writing"]


def load(path: str | os.PathLike[str], *, host: PluginHost | None = None) -> Any:
    """What is in a file: arrays by name (`.safetensors`), a graph or a module (`.rlx`), or what a plugin's reader returns.

    Args:
        path: The file; its suffix, in any case, chooses the reader.
        host: The plugins to use; everything installed by default.

    Raises:
        UnknownNameError: No plugin reads files with that suffix.
        FormatError: The file is not what its suffix says, or is damaged.
        FileError: It cannot be read: it is not there, say (an OSError).
    """
    found, at = host or default_host(), path_of("load", path)
    read = usable(found, "importers", found.importers_for(at.suffix.lower()))
    with reading("load", at):
        return read(at, found)


def save(path: str | os.PathLike[str], value: Any, *, host: PluginHost | None = None) -> None:
    """Write a file: arrays by name (`.safetensors`), a graph or a module (`.rlx`), or what a plugin's writer takes.

    The file appears as a whole, or on an error stays as it was.

    Args:
        path: The file; its suffix, in any case, chooses the writer.
        value: What to write.
        host: The plugins to use; everything installed by default.

    Raises:
        UnknownNameError: No plugin writes files with that suffix.
        FormatError, DtypeError: The value cannot be written in that format.
        FileError: The file cannot be written (an OSError).
    """
    found, at = host or default_host(), path_of("save", path)
    write = usable(found, "exporters", found.exporters_for(at.suffix.lower()))
    with writing("save", at):
        write(at, value, found)


def usable(host: PluginHost, kind: str, specs: Sequence[Contribution]) -> Callable[..., Any]:
    """The first reader or writer that works; those before it are left out with a warning.

    Raises:
        PluginError: None does; the error is that of the first.
    """
    registry = host.registry()
    for spec in specs[:-1]:
        found: Callable[..., Any] | None = registry.usable(kind, spec.name, expectation(kind, spec, registry))
        if found is not None:
            return found
    first = next((spec for spec in specs if (kind, spec.name) in registry.left_out), None)
    try:
        last: Callable[..., Any] = registry.load(kind, specs[-1].name, expectation(kind, specs[-1], registry))
    except PluginError:
        if first is None:
            raise
        registry.load(kind, first.name, expectation(kind, first, registry))
        raise
    return last


def path_of(what: str, path: str | os.PathLike[str]) -> Path:
    """What somebody gave as a path.

    Raises:
        FileError: No file can be called that; the message begins with `what`.
    """
    found = Path(path)
    try:
        has_nul = b"\0" in os.fsencode(found)
    except UnicodeEncodeError as error:
        raise FileError(f"{what}: {str(found)!a} is no path ({error.reason})") from None
    if has_nul:
        raise FileError(f"{what}: {str(found)!a} is no path (it holds a NUL)")
    return found


@contextmanager
def reading(what: str, path: Path) -> Iterator[None]:
    """Read a file inside.

    Raises:
        FileError: The system refuses that; the message begins with `what`.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{what}: {path} cannot be read ({error.strerror or error})", hint=_neighbour(path)) from error


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Write a file inside.

    Raises:
        FileError: The system refuses that; the message begins with `what`.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        hint = None if path.parent.is_dir() else f"there is no directory {path.parent}; make it first"
        raise FileError(f"{what}: {path} cannot be written ({error.strerror or error})", hint=hint) from error


def _neighbour(path: Path) -> str | None:
    """The hint for a misspelt file: the one in its directory that is called nearly so."""
    with contextlib.suppress(OSError):  # the error that it is a hint for says what the system refuses
        return None if path.exists() else nearest(path.name, sorted(each.name for each in path.parent.iterdir()))
    return None

"""`rlx.load` and `rlx.save`: the suffix of a file says which plugin reads or writes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlx_core.plugins import PluginHost, default_host

__all__ = ["load", "save"]


def load(path: str | os.PathLike[str], *, host: PluginHost | None = None) -> Any:
    """What is in a file: arrays by name (`.safetensors`), a graph or a module (`.rlx`), or what a plugin's reader returns.

    Args:
        path: The file; its suffix, in any case, chooses the reader.
        host: The plugins to use; everything installed by default.

    Raises:
        UnknownNameError: No plugin reads files with that suffix.
        FormatError: The file is not what its suffix says, or is damaged.
        OSError: The file cannot be read.
    """
    found, at = host or default_host(), Path(path)
    spec = found.importer_for(at.suffix.lower())
    read: Callable[[Path, PluginHost], Any] = found.load("importers", spec.name)
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
        OSError: The file cannot be written.
    """
    found, at = host or default_host(), Path(path)
    spec = found.exporter_for(at.suffix.lower())
    write: Callable[[Path, Any, PluginHost], None] = found.load("exporters", spec.name)
    write(at, value, found)

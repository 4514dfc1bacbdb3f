"""Code that a configuration file names: the rules for running or refusing it.

A file in a parent directory, which another user may have put there, decides nothing about the code that runs here. A discovered
configuration of another user is not read at all. One of this user that was discovered, rather than named by the program or on
the command line, may name plugin files of its project alone: in its directory or below, belonging to this user (or to root), and
writable by no one else, each directory on the way included.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlx_core.errors import ConfigError, Fact
from rlx_core.system import private


def anchored(table: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """The table of a file with the plugin files that it names as absolute paths: they are relative to the file."""
    plugins = table.get("plugins")
    if not isinstance(plugins, Mapping):
        return table
    resolved = {
        key: [_absolute(word, file) for word in words]
        for key in ("files", "enable")
        if isinstance(words := plugins.get(key), list | tuple) and all(isinstance(word, str) for word in words)
    }
    return {**table, "plugins": {**plugins, **resolved}}


def expect_trusted(table: Mapping[str, Any], file: Path) -> None:
    """Refuse code that a configuration file names, if the file was discovered and not named by the user.

    Args:
        table: The contents of the file, `anchored`.
        file: The path of the file.

    Raises:
        ConfigError: The configuration, or a plugin file, may have been written by another user, or the latter lies elsewhere.
    """
    project = Path(os.path.realpath(file.parent))
    for code in _code_of(table):
        for place in (file, project):
            _expect_own(place, code, file)
        location = Path(os.path.realpath(code))
        if not location.is_relative_to(project):
            raise ConfigError(
                f"plugins: {code} is outside of the project whose configuration names it",
                Fact("file", file),
                Fact("project", project),
                hint=f"move it there, or {_by_name(file)}",
            )
        for place in (location, *(each for each in location.parents if each.is_relative_to(project))):
            _expect_own(place, code, file)


def is_foreign(file: Path) -> bool:
    """Return whether a discovered configuration, or the link to it, is another user's; a warning reports that it is not read."""
    for status in (file.lstat(), file.stat()):
        if private.is_foreign(status):
            warnings.warn(
                f"configuration: {file} is not read, because it {private.reason_against(status)}; to use it, {_by_name(file)}",
                RuntimeWarning,
                stacklevel=2,
            )
            return True
    return False


def _code_of(table: Mapping[str, Any]) -> Iterator[str]:
    """The paths of the plugin files in a table."""
    plugins = table.get("plugins")
    if isinstance(plugins, Mapping):
        for key in ("files", "enable"):
            words = plugins.get(key)
            for word in words if isinstance(words, list | tuple) else ():
                if isinstance(word, str) and _is_file(word):
                    yield word.rpartition("=")[2]


def _is_file(word: str) -> bool:
    return word.endswith(".py")


def _absolute(word: str, file: Path) -> str:
    domain, equals, path = word.rpartition("=")
    return f"{domain}{equals}{file.absolute().parent / Path(path).expanduser()}" if _is_file(word) else word


def _expect_own(place: Path, code: str, file: Path) -> None:
    try:
        reason = private.reason_against(place.stat())
    except (OSError, ValueError):
        return  # a missing file is not run; the import reports the error
    if reason is not None:
        mend = f"chmod go-w {place}" if "written" in reason else f"chown it to {os.geteuid()}"
        raise ConfigError(
            f"plugins: {code} is not run, because {place} {reason}",
            Fact("file", file),
            hint=f"{mend}, or {_by_name(file)}",
        )


def _by_name(file: Path) -> str:
    return f'name the configuration: config="{file}", or `rlx --config {file}`'

"""Reading configuration: files, variables and tables of the program, merged by precedence.

Precedence: what the program says, then the environment, then the file, then the defaults. Making records of the result,
and saying what is wrong with it, is `config_structure.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from rlx_core.errors import ConfigError, Fact
from rlx_core.pipeline.config import Configuration, PluginConfig, UnknownSetting
from rlx_core.pipeline.config_trust import anchored, expect_trusted, is_foreign
from rlx_core.pipeline.settings import read_settings

__all__ = ["file_table", "find_config", "load_config", "load_plugin_config", "named_options", "read_table"]

# -------------------------------------------------------------------------------------------- front


def load_config(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] | None = None,
    options: Iterable[Any] = (),
) -> Configuration:
    """The configuration from a file, the environment and the program's own overrides.

    Args:
        path: A `.toml` file; without it the nearest `rlx.toml`, or `pyproject.toml` with `[tool.rlx]`, from `start` upwards.
        overrides: The same tables as a dictionary; a dotted key stands for nested tables.
        environ: Settings; `os.environ` if not given.
        start: Where the search for a file begins; the working directory if not given.
        options: Options that plugins contribute.

    Raises:
        ConfigError: Every fault, with its file or variable, its key, what was found, and the nearest right key.
    """
    contributed = list(options)
    layers, unknown = gather(path, overrides, os.environ if environ is None else environ, start, contributed)
    return read_layers(layers, unknown, contributed)


def load_plugin_config(
    path: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> PluginConfig:
    """The `[plugins]` table alone, which must be known before the options are that plugins contribute.

    What the environment says of plugins is not in it: the plugin layer reads that itself, with or without a configuration.

    Raises:
        ConfigError: As `load_config`, for this table.
    """
    layers, _ = gather(path, overrides, {}, None, [])
    tables = [({"plugins": table["plugins"]}, source) for table, source in layers if "plugins" in table]
    return read_layers(tables).plugins


def named_options(
    path: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> frozenset[str]:
    """The names in the `[options]` table, known or not."""
    layers, _ = gather(path, overrides, {}, None, [])
    tables = [table.get("options", {}) for table, _ in layers]
    return frozenset(name for table in tables if isinstance(table, Mapping) for name in table)


Layer = tuple[Mapping[str, Any], str]


def gather(
    path: str | os.PathLike[str] | None,
    overrides: Mapping[str, Any] | None,
    environ: Mapping[str, str],
    start: str | os.PathLike[str] | None,
    contributed: Iterable[Any],
) -> tuple[list[Layer], tuple[UnknownSetting, ...]]:
    """The tables that make up a configuration, lowest precedence first, each with its source; and unknown variables."""
    file = Path(path) if path is not None else find_config(start)
    layers: list[Layer] = [] if file is None else [(file_table(file, is_named=path is not None), str(file))]
    said = unfold(overrides or {})
    target = said.get("target") or next((t.get("target") for t, _ in layers), None)
    settings, unknown = read_settings(environ, target if isinstance(target, str) else None, contributed)
    layers += [(unfold({key: value}), name) for key, (value, name) in settings.items()]
    layers.append((said, "the program"))
    return layers, unknown


def read_table(table: Mapping[str, Any], source: str = "the program") -> Configuration:
    """The configuration that one dictionary says, without files or environment.

    Raises:
        ConfigError: As `load_config`.
    """
    return read_layers([(unfold(table), source)])


def find_config(start: str | os.PathLike[str] | None = None) -> Path | None:
    """The nearest `rlx.toml`, or `pyproject.toml` that has `[tool.rlx]`, in `start` or above it."""
    folder = Path(start) if start is not None else Path.cwd()
    for each in (folder, *folder.parents):
        if (each / "rlx.toml").is_file():
            return each / "rlx.toml"
        project = each / "pyproject.toml"
        if project.is_file() and section_of(project) is not None and not is_foreign(project):
            return project
    return None


def file_table(path: Path, *, is_named: bool) -> Mapping[str, Any]:
    """The tables of a configuration file, with plugin files as absolute paths.

    Args:
        path: The file.
        is_named: Whether the program or the command line named it; otherwise it was found, and may not name any code.

    Raises:
        ConfigError: It cannot be read, or was found and names code that may be somebody else's.
    """
    table = anchored(read_file(path), path)
    if not is_named:
        expect_trusted(table, path)
    return table


def read_file(path: Path) -> Mapping[str, Any]:
    """The tables of a configuration file: the whole of an `rlx.toml`, `[tool.rlx]` of a `pyproject.toml`."""
    if path.name != "pyproject.toml":
        return parse(path)
    section = section_of(path)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"configuration: {path}: tool.rlx is {section!r}, not a table", Fact("file", path))
    return section


def section_of(path: Path) -> Any:
    """What a `pyproject.toml` has as `tool.rlx`, or `None`."""
    tool = parse(path).get("tool") if _MAY_HAVE_SECTION.search(text_of(path)) else None
    return tool.get("rlx") if isinstance(tool, Mapping) else None


MOST_NESTED: Final = 32
"""Tables and lists inside one another; what configurations say needs five."""

_MAY_HAVE_SECTION: Final = re.compile(r"""^\s*\[{0,2}\s*["']?tool["']?\s*(\.\s*["']?rlx|\]|=)|\\[uUx]""", re.MULTILINE)
"""Whether a `pyproject.toml` can have `tool.rlx` at all: most have not, and need not be parsed to know it.

Keys begin on a line of their own, as `tool.rlx`, or as `tool` with `rlx` below it, bare or quoted; quoted ones may have
their letters as numbers. What looks like that in a comment or a string is parsed for nothing.
"""


def parse(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file."""

    text = text_of(path)
    try:
        return parsed(text)
    except ValueError as error:  # a number of too many digits is one that tomllib does not expect
        raise ConfigError(f"configuration: {path} is not TOML: {error}", Fact("file", path)) from None
    except RecursionError:
        raise too_deep(path) from None


@lru_cache(maxsize=8)
def parsed(text: str) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(text)


def text_of(path: Path) -> str:
    """The text of a TOML file, read anew when it changed: three looks are taken at it in each compilation."""
    try:
        found = path.stat()
    except ValueError as error:  # a NUL, or what no file system's encoding has
        raise ConfigError(f"configuration: {str(path)!a} is no path ({str(error)!a})") from None
    except OSError as error:
        raise ConfigError(f"configuration: {path} cannot be read ({error.strerror})") from None
    try:
        return _read(path, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"configuration: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration: {path} is not TOML: {error}", Fact("file", path)) from None


@lru_cache(maxsize=8)
def _read(path: Path, size: int, changed: int) -> str:
    return path.read_text("utf-8")


# ------------------------------------------------------------------------------------------- layers


def unfold(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with dotted keys at its top as nested tables: `{"dispatch.rounds": 4}`."""
    expect_shallow(table, "the program")
    result: dict[str, Any] = {}
    for key, value in table.items():
        expect_text_keys({key: value})
        *path, last = key.split(".")
        # Names of ops, passes and options hold dots themselves; those tables are said whole.
        if path and path[0] in ("passes", "options", "pipeline"):
            path, last = path[:1], ".".join([*path[1:], last])
        inner = result
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = merged(inner[last], value) if last in inner and isinstance(value, Mapping) else value
    return result


def expect_text_keys(table: Mapping[Any, Any], where: str = "configuration") -> None:
    """Refuse keys that are no text, which a table of the program may have."""
    for key, value in table.items():
        if not isinstance(key, str):
            raise ConfigError(f"{where}: a key is text, and {key!r} is {type(key).__name__}")
        if isinstance(value, Mapping):
            expect_text_keys(value, f"{where}: {key}")


def merged(lower: Any, upper: Any) -> Any:
    """Tables merge key by key; anything else replaces what was below it."""
    if not (isinstance(lower, Mapping) and isinstance(upper, Mapping)):
        return upper
    return {**lower, **{k: merged(lower[k], v) if k in lower else v for k, v in upper.items()}}


def too_deep(source: object) -> ConfigError:
    return ConfigError(f"configuration: tables and lists are nested more than {MOST_NESTED} deep", Fact("in", source))


def expect_shallow(table: Mapping[str, Any], source: str) -> None:
    """Require that a table nests no deeper than what reads it may recurse.

    Raises:
        ConfigError: It does.
    """
    level: list[Any] = [table]
    for _ in range(MOST_NESTED):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(inner, Mapping | list | tuple)
        ]
    if level:
        raise too_deep(source)


def key_paths(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from key_paths(value, f"{prefix}{key}.")


def read_layers(
    layers: Iterable[tuple[Mapping[str, Any], str]],
    unknown: tuple[UnknownSetting, ...] = (),
    options: Iterable[Any] = (),
) -> Configuration:
    whole: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for table, source in layers:
        expect_shallow(table, source)
        whole = merged(whole, table)
        origins.update(dict.fromkeys(key_paths(table), source))
    known = {o.name: o for o in options}
    found = Configuration()
    if whole:
        # Imported where there is something to check: most programs say nothing, and cattrs takes ten milliseconds.
        from rlx_core.pipeline.config_structure import configuration_of

        found = configuration_of(whole, known, origins)
    defaults = {name: o.default for name, o in known.items()}
    return evolve(found, options={**defaults, **found.options}, origins=origins, unknown_settings=unknown)

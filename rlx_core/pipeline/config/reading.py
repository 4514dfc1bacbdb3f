"""Reading configuration: files, variables and tables of the program, merged by precedence.

Precedence: arguments of the program, then the environment, then the file, then the defaults. Making records of the result,
and reporting its faults, is `structure.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from rlx_core.errors import ConfigError, Fact
from rlx_core.pipeline import config
from rlx_core.pipeline.config.records import Configuration, PluginConfig, UnknownSetting
from rlx_core.pipeline.config.settings import heeded, read_settings
from rlx_core.system import private
from rlx_core.system.records import frozen

__all__ = ["Sources", "file_table", "find_config", "load_config", "read_sources", "read_table"]

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
        overrides: The same tables as a dictionary; a dotted key means nested tables.
        environ: Settings; `os.environ` if not given.
        start: The directory where the search for a file begins; the working directory if not given.
        options: Options that plugins contribute.

    Raises:
        ConfigError: Every fault, with its file or variable, its key, its value, and the nearest right key.
    """
    sources = read_sources(path, overrides, start)
    return sources.configuration(os.environ if environ is None else environ, {o.name: o for o in options})


Layer = tuple[Mapping[str, Any], str]


@frozen(eq=False)
class Sources:
    """The tables of the file and of the program, with their sources, the file's first: each compilation reads them once.

    The plugins' options, which a configuration is read with, are known after its `[plugins]` table and the names in `[options]`.
    """

    layers: tuple[Layer, ...]

    def plugins(self) -> PluginConfig:
        """The `[plugins]` table alone.

        Settings of plugins in the environment are not in it: the plugin layer reads them itself, with or without a configuration.

        Raises:
            ConfigError: As `load_config`, for this table.
        """
        tables = [({"plugins": table["plugins"]}, source) for table, source in self.layers if "plugins" in table]
        return read_layers(tables).plugins if tables else PluginConfig()

    def option_names(self) -> frozenset[str]:
        """The names in the `[options]` table, known or not."""
        tables = [table.get("options", {}) for table, _ in self.layers]
        return frozenset(name for table in tables if isinstance(table, Mapping) for name in table)

    def configuration(self, environ: Mapping[str, str], options: Mapping[str, Any]) -> Configuration:
        """Return the whole configuration, with the settings of the environment and the options that plugins contribute, by name.

        If the program sets nothing, the usual case, it is the same object as long as everything else is the same text.

        Raises:
            ConfigError: As `load_config`.
        """
        tables = None if self.layers[-1][0] else written_out(self.layers)
        if tables is None:
            return self._read(environ, options)
        inputs = tables, tuple((n, environ[n]) for n in heeded(environ, options.values()))
        for known, known_options, cached in _latest:
            if known == inputs and known_options is options:
                return cached
        result = self._read(environ, options)
        _latest[:] = [(inputs, options, result)]
        return result

    def _read(self, environ: Mapping[str, str], options: Mapping[str, Any]) -> Configuration:
        target = next((t["target"] for t, _ in reversed(self.layers) if t.get("target")), None)
        settings, unknown = read_settings(environ, target if isinstance(target, str) else None, options.values())
        *file, program = self.layers
        layers = [(unfold({key: value}), name) for key, (value, name) in settings.items()]
        return read_layers([*file, *layers, program], unknown, options.values())


def written_out(layers: Sequence[Layer]) -> str | None:
    """Tables as text, where 1 is not true; `None` if a number has more digits than Python writes."""
    try:
        return repr(layers)
    except ValueError:
        return None


_latest: list[tuple[object, Mapping[str, Any], Configuration]] = []
"""The configuration read last, and its inputs: programs are many, and configurations few."""


def read_sources(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    start: str | os.PathLike[str] | None = None,
) -> Sources:
    """Return the tables of the file and of the program; arguments and errors as of `load_config`."""
    file = Path(path) if path is not None else find_config(start)
    layers: list[Layer] = []
    if file is not None:
        table = file_table(file, is_named=path is not None)
        expect_shallow(table, str(file))
        layers.append((table, str(file)))
    return Sources((*layers, (unfold(overrides or {}), "the program")))


def read_table(table: Mapping[str, Any], source: str = "the program") -> Configuration:
    """Return the configuration that one dictionary describes, without files or environment.

    Raises:
        ConfigError: As `load_config`.
    """
    return read_layers([(unfold(table), source)])


def find_config(start: str | os.PathLike[str] | None = None) -> Path | None:
    """The nearest `rlx.toml`, or `pyproject.toml` that has `[tool.rlx]`, in `start` or above it."""
    folder, below = os.getcwd() if start is None else str(Path(start)), None
    while folder != below:  # as strings: every compilation searches, and paths as objects take ten times as long
        rlx_toml, project = os.path.join(folder, "rlx.toml"), os.path.join(folder, "pyproject.toml")
        if os.path.isfile(rlx_toml) and not config.trust.is_foreign(Path(rlx_toml)):
            return Path(rlx_toml)
        if os.path.isfile(project) and _is_configuration(Path(project)):
            return Path(project)
        folder, below = os.path.dirname(folder), folder
    return None


def _is_configuration(project: Path) -> bool:
    """Return whether a `pyproject.toml` has `[tool.rlx]` and is not another user's, whose faults are not this program's."""
    if private.is_foreign(project.stat()) or private.is_foreign(project.lstat()):
        with suppress(ConfigError):  # not TOML, or not readable: then it is not known to be meant for rlx
            if may_have_section(text_of(project)):
                config.trust.is_foreign(project)
        return False
    return section_of(project) is not None


def file_table(path: Path, *, is_named: bool) -> Mapping[str, Any]:
    """The tables of a configuration file, with plugin files as absolute paths.

    Args:
        path: The file.
        is_named: Whether the program or the command line named it; otherwise it was discovered, and may not name any code.

    Raises:
        ConfigError: It cannot be read, or was discovered and names code that another user may have written.
    """
    table = config.trust.anchored(read_file(path), path)
    if not is_named:
        config.trust.expect_trusted(table, path)
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
    """Return the `tool.rlx` table of a `pyproject.toml`, or `None`."""
    tool = parse(path).get("tool") if may_have_section(text_of(path)) else None
    return tool.get("rlx") if isinstance(tool, Mapping) else None


MAX_NBYTES: Final = 1 << 20
"""Bytes of a configuration file; typical files have some thousands."""

MOST_NESTED: Final = 32
"""Nesting depth of tables and lists; typical files need five."""

_MAY_HAVE_SECTION: Final = re.compile(r"""^\s*\[{0,2}\s*["']?tool["']?\s*(\.\s*["']?rlx|\]|=)|\\[uUx]""", re.MULTILINE)
"""Whether a `pyproject.toml` can have `tool.rlx` at all: most have not, and need not be parsed to know it.

Keys begin on a separate line, as `tool.rlx`, or as `tool` with `rlx` below it, bare or quoted; quoted ones may have
their letters as numbers. A match in a comment or a string costs an unnecessary parse.
"""


@lru_cache(maxsize=8)
def may_have_section(text: str) -> bool:
    return _MAY_HAVE_SECTION.search(text) is not None


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
    """Return the text of a TOML file, read again only when it changed: each compilation looks at it."""
    try:
        status = path.stat()
    except ValueError as error:  # a NUL, or characters outside of every file system's encoding
        raise ConfigError(f"configuration: {str(path)!a} is no path ({str(error)!a})") from None
    except OSError as error:
        raise ConfigError(f"configuration: {path} cannot be read ({error.strerror})") from None
    if status.st_size > MAX_NBYTES:
        raise ConfigError(
            f"configuration: {path} has {status.st_size} bytes, and a configuration at most {MAX_NBYTES}",
            Fact("file", path),
        )
    try:
        return _read(path, status.st_size, status.st_mtime_ns)
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
        # Names of ops, passes and options contain dots; those tables have flat keys.
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
    """Merge tables key by key; any other value replaces the lower one."""
    if not (isinstance(lower, Mapping) and isinstance(upper, Mapping)):
        return upper
    return {**lower, **{k: merged(lower[k], v) if k in lower else v for k, v in upper.items()}}


def too_deep(source: object) -> ConfigError:
    return ConfigError(f"configuration: tables and lists are nested more than {MOST_NESTED} deep", Fact("in", source))


def expect_shallow(table: Mapping[str, Any], source: str) -> None:
    """Require that a table nests no deeper than its readers may recurse.

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
    combined: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for table, source in layers:
        expect_shallow(table, source)
        combined = merged(combined, table)
        origins.update(dict.fromkeys(key_paths(table), source))
    known = {o.name: o for o in options}
    configuration = Configuration()
    if combined:
        # Imported where there is something to check: most programs say nothing.
        from rlx_core.pipeline.config.structure import configuration_of

        configuration = configuration_of(combined, known, origins)
    defaults = {name: o.default for name, o in known.items()}
    return evolve(
        configuration, options={**defaults, **configuration.options}, origins=origins, unknown_settings=unknown
    )

"""Reading configuration: layers of tables merged by precedence, structured into records, faults named by file and key.

Precedence: what the program says, then the environment, then the file, then the defaults. All faults of all layers are
reported at once.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from attrs import evolve, frozen
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.pipeline.config import Configuration, Entry, PluginConfig, UnknownSetting, freeze
from rlx_core.pipeline.settings import read_settings

__all__ = ["find_config", "load_config", "load_plugin_config", "named_options", "read_table", "structure"]

T = TypeVar("T")

INTERNAL = frozenset({"origins", "unknown_settings"})


@frozen
class Fault:
    """One thing that is wrong with a value, and the key path it is at."""

    key: str
    message: str
    hint: str | None = None


class WrongType(TypeError):
    """A value of another type than the record wants; carries both for the message."""

    def __init__(self, found: object, wanted: str) -> None:
        super().__init__(f"found {shown(found)}, wanted {wanted}")


def shown(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "float", str: "string", list: "list", dict: "table"}
    return f"{value!r} ({names.get(type(value), type(value).__name__)})"


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
    layers: list[Layer] = [] if file is None else [(read_file(file), str(file))]
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
        if project.is_file() and "rlx" in parse(project).get("tool", {}):
            return project
    return None


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a configuration file: the whole of an `rlx.toml`, `[tool.rlx]` of a `pyproject.toml`."""
    table = parse(path)
    if path.name == "pyproject.toml":
        table = table.get("tool", {}).get("rlx", {})
    return table


def parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration: {path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration: {path} is not TOML: {error}", Fact("file", path)) from None


# ------------------------------------------------------------------------------------------- layers


def unfold(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with dotted keys at its top as nested tables: `{"dispatch.rounds": 4}`."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        *path, last = key.split(".")
        # Names of ops, passes and options hold dots themselves; those tables are said whole.
        if path and path[0] in ("passes", "options", "pipeline"):
            path, last = path[:1], ".".join([*path[1:], last])
        inner = result
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = merged(inner[last], value) if last in inner and isinstance(value, Mapping) else value
    return result


def merged(lower: Any, upper: Any) -> Any:
    """Tables merge key by key; anything else replaces what was below it."""
    if not (isinstance(lower, Mapping) and isinstance(upper, Mapping)):
        return upper
    return {**lower, **{k: merged(lower[k], v) if k in lower else v for k, v in upper.items()}}


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
        whole = merged(whole, table)
        origins.update(dict.fromkeys(key_paths(table), source))
    known = {o.name: o for o in options}
    try:
        found = converter().structure(whole, Configuration)
    except (ClassValidationError, IterableValidationError) as error:
        raise faults_error(list(faults(error)), origins) from None
    wrong = list(option_faults(found.options, known))
    if wrong:
        raise faults_error(wrong, origins)
    defaults = {name: o.default for name, o in known.items()}
    return evolve(found, options={**defaults, **found.options}, origins=origins, unknown_settings=unknown)


def option_faults(given: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong with the values of contributed options."""
    for name, value in given.items():
        if name not in known:
            yield Fault(f"options.{name}", "no plugin offers this option", nearest(name, known))
        elif not isinstance(value, known[name].type) or (isinstance(value, bool) and known[name].type is not bool):
            yield Fault(f"options.{name}", f"found {shown(value)}, wanted {known[name].type.__name__}")


# ---------------------------------------------------------------------------------------- structure


@cache
def converter() -> cattrs.Converter:
    """Strict: no value is coerced, no key is ignored."""
    made = cattrs.Converter(forbid_extra_keys=True)
    for kind, wanted in ((bool, "true or false"), (str, "a string"), (int, "an integer"), (float, "a number")):
        made.register_structure_hook(kind, strictly(kind, wanted))
    made.register_structure_hook_func(is_literal, one_of)
    made.register_structure_hook_func(lambda t: t == tuple[str, ...], list_of_strings)
    made.register_structure_hook_func(lambda t: t == tuple[Entry, ...], list_of_entries)
    made.register_structure_hook_func(lambda t: t == Mapping[str, Any], table_of_anything)
    made.register_structure_hook_func(lambda t: t == Mapping[str, Mapping[str, Any]], table_of_tables)
    made.register_structure_hook_factory(attrs.has, lambda cls, c: record_of(cls, c))
    return made


def strictly(kind: type, wanted: str) -> Any:
    def structure(value: object, _: object) -> object:
        if isinstance(value, bool) and kind is not bool:
            raise WrongType(value, wanted)
        if kind is float and isinstance(value, int):
            return float(value)
        if not isinstance(value, kind):
            raise WrongType(value, wanted)
        return value

    return structure


def record_of(cls: type, within: cattrs.Converter) -> Any:
    """Structure a record from a table whose keys may be written with hyphens."""
    omitted: dict[str, Any] = {
        name: cattrs.gen.override(omit=True) for name in INTERNAL & {a.name for a in attrs.fields(cls)}
    }
    plain: Any = cattrs.gen.make_dict_structure_fn(cls, within, _cattrs_forbid_extra_keys=True, **omitted)

    def structure(table: object, _: object) -> object:
        if not isinstance(table, Mapping):
            raise WrongType(table, "a table")
        return plain({str(k).replace("-", "_"): v for k, v in table.items()}, cls)

    return structure


def is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def one_of(value: object, literal: Any) -> object:
    choices = get_args(literal)
    if value not in choices:
        raise WrongType(value, " or ".join(choices))
    return value


def list_of_strings(value: object, _: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise WrongType(value, "a list of strings")
    return tuple(value)


def list_of_entries(value: object, _: object) -> tuple[Entry, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str | Mapping) for v in value):
        raise WrongType(value, "a list of names and { name = { options } }")
    return freeze(value)


def table_of_anything(value: object, _: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongType(value, "a table")
    return freeze(value)


def table_of_tables(value: object, _: object) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise WrongType(value, "a table of tables")
    return freeze(value)


def structure(table: Mapping[str, Any], cls: type[T], what: str, source: str) -> T:
    """A record from one table that is not part of the configuration's own tree: the options of a pass, say.

    Raises:
        ConfigError: `what` is said to have the fault, `source` to be where it was said.
    """
    try:
        return converter().structure(table, cls)
    except (ClassValidationError, IterableValidationError) as error:
        found = list(faults(error))
    first = found[0]
    facts = [Fact(f.key or "options", f.message, source) for f in found]
    raise ConfigError(f"{what}: {first.key}: {first.message}", *facts, hint=first.hint if len(found) == 1 else None)


# ------------------------------------------------------------------------------------------- faults


def faults(error: BaseException, path: str = "") -> Iterator[Fault]:
    """The faults in an error of cattrs, each at its key path."""
    if isinstance(error, ClassValidationError):
        noted, others = error.group_exceptions()
        for inner, note in noted:
            yield from faults(inner, joined(path, key_of(note)))
        for inner in others:
            yield from faults(inner, path)
    elif isinstance(error, IterableValidationError):
        entries, others = error.group_exceptions()
        for inner, place in entries:
            yield from faults(inner, joined(path, key_of(place)))
        for inner in others:
            yield from faults(inner, path)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = [a.name.replace("_", "-") for a in attrs.fields(error.cl) if a.name not in INTERNAL]
        for name in sorted(error.extra_fields):
            key = name.replace("_", "-")
            yield Fault(joined(path, key), "unknown key", nearest(key, known) or f"known: {', '.join(known)}")
    else:
        name, rest = validator_message(str(error))
        yield Fault(joined(path, name), rest)


def key_of(note: AttributeValidationNote | IterableValidationNote) -> str:
    if isinstance(note, AttributeValidationNote):
        return note.name.replace("_", "-")
    return str(note.index)


def joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def validator_message(text: str) -> tuple[str, str]:
    """Validators of attrs begin with the quoted field: `'rounds' must be >= 1: 0`."""
    if text.startswith("'") and "' " in text:
        name, _, rest = text[1:].partition("' ")
        return name.replace("_", "-"), rest
    return "", text


def faults_error(found: list[Fault], origins: Mapping[str, str]) -> ConfigError:
    """One error for all faults: the first in the message, each as a fact with the place that said it."""
    first = found[0]
    facts = [Fact(f.key or "configuration", f.message, said_where(f.key, origins)) for f in found]
    more = "" if len(found) == 1 else f" (and {len(found) - 1} more)"
    hint = first.hint if len(found) == 1 else None
    facts += [Fact(f.key, f.hint) for f in found if f.hint and len(found) > 1]
    return ConfigError(f"configuration: {first.key}: {first.message}{more}", *facts, hint=hint)


def said_where(key: str, origins: Mapping[str, str]) -> str | None:
    spellings = {path.replace("_", "-"): source for path, source in origins.items()}
    parts = key.replace("_", "-").split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in spellings:
            return spellings[".".join(parts[:end])]
    return None

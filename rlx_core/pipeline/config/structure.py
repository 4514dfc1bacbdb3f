"""Strict conversion of configuration tables to records by their annotations; every fault names its key and its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.ir.annotations import MISFIT, annotations_of, fitting, misfit
from rlx_core.pipeline.config.records import Configuration, Entry, freeze, source_of
from rlx_core.system.records import frozen

T = TypeVar("T", bound=attrs.AttrsInstance)

MAX_FAULTS: Final = 20
"""Faults that one error lists: each takes a search for the nearest key, and a file may have thousands of them."""

INTERNAL = frozenset({"origins", "unknown_settings"})


@frozen
class ConfigFault:
    """One thing that is wrong with a value, and the key path it is at."""

    key: str
    message: str
    hint: str | None = None


def shown(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "float", str: "string", list: "list", dict: "table"}
    return f"{value!r} ({names.get(type(value), type(value).__name__)})"


def configuration_of(table: Mapping[str, Any], options: Mapping[str, Any], origins: Mapping[str, str]) -> Configuration:
    """Return the configuration of a merged table.

    Args:
        options: Options that plugins contribute, by name.
        origins: Key path → its source.

    Raises:
        ConfigError: Every fault in it.
    """
    faults: list[ConfigFault] = []
    configuration: Configuration = record_of(table, Configuration, "", faults)
    if faults:
        raise faults_error([with_option(fault, table, options) for fault in faults[: MAX_FAULTS + 1]], origins)
    wrong = list(islice(option_faults(configuration.options, options), MAX_FAULTS + 1))
    if wrong:
        raise faults_error(wrong, origins)
    return configuration


def option_faults(options: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield the faults in the values of contributed options."""
    for name, value in options.items():
        if name not in known:
            yield ConfigFault(f"options.{name}", "no plugin offers this option", option_hint(name, value, known))
        elif not isinstance(value, known[name].type) or (isinstance(value, bool) and known[name].type is not bool):
            yield ConfigFault(f"options.{name}", f"found {shown(value)}, wanted {known[name].type.__name__}")


def option_hint(name: str, value: object, known: Mapping[str, Any]) -> str | None:
    """Return the intended option for an unknown one: its new name, an entry of a table (whose full name is one key), or a close
    name."""
    current = next((other for other, option in known.items() if name in option.former), None)
    if current is not None:
        return f'the option was renamed: "{current}" = ...'
    if isinstance(value, Mapping) and any(other.startswith(f"{name}.") for other in known):
        key = next(iter(value), "")
        meant = nearest(f"{name}.{key}", known) if f"{name}.{key}" not in known else None
        return f'an option is one key of [options], dots included: "{name}.{key}" = ...{f"; {meant}" if meant else ""}'
    return nearest(name, known)


def with_option(fault: ConfigFault, table: Mapping[str, Any], known: Mapping[str, Any]) -> ConfigFault:
    """A fault with the hint that the key belongs into `[options]`, where a key of the configuration begins like an option."""
    value = table.get(fault.key)
    if value is None or not any(name == fault.key or name.startswith(f"{fault.key}.") for name in known):
        return fault
    return attrs.evolve(fault, hint=option_hint(fault.key, value, known) or f'[options] "{fault.key}" = ...')


# ---------------------------------------------------------------------------------------- structure


def _are(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(isinstance(each, kind) for each in value)


_KINDS: Final[Mapping[Any, tuple[Callable[[Any], bool], str]]] = {
    bool: (lambda value: isinstance(value, bool), "true or false"),
    str: (lambda value: isinstance(value, str), "a string"),
    int: (lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer"),
    float: (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    tuple[str, ...]: (_are(str), "a list of strings"),
    tuple[Entry, ...]: (_are(str | Mapping), "a list of names and { name = { options } }"),
    Mapping[str, Any]: (lambda value: isinstance(value, Mapping), "a table"),
    Mapping[str, Mapping[str, Any]]: (
        lambda value: isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values()),
        "a table of tables",
    ),
}
"""Annotation → the check of a value, and the description of valid ones. No value is coerced, but an integer is a number."""


def value_of(value: Any, kind: Any, key: str, faults: list[ConfigFault]) -> Any:
    """Return a value as its record takes it; errors are added to `faults`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if len(faults) > MAX_FAULTS or (value is None and NoneType in arguments):
        return None
    if attrs.has(kind):
        return record_of(value, kind, key, faults)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return value_of(value, next(each for each in arguments if each is not NoneType), key, faults)
    if origin is Literal:
        is_valid, expected = value in arguments, " or ".join(map(str, arguments))
    elif kind in _KINDS:
        is_valid, expected = _KINDS[kind][0](value), _KINDS[kind][1]
    elif origin is Mapping:
        is_valid, expected = isinstance(value, Mapping), "a table"
        if is_valid:
            return {name: value_of(each, arguments[1], joined(key, str(name)), faults) for name, each in value.items()}
    else:
        result = fitting(kind)(value)
        if result is MISFIT:
            faults.append(ConfigFault(key, misfit(key, value, kind)))
        return result
    if not is_valid:
        faults.append(ConfigFault(key, f"found {shown(value)}, wanted {expected}"))
        return None
    try:
        return float(value) if kind is float else freeze(value)
    except OverflowError as error:
        faults.append(ConfigFault(key, str(error)))
        return None


def record_of(table: Any, cls: type[Any], path: str, faults: list[ConfigFault]) -> Any:
    """Return the record of a table whose keys may be written with hyphens; errors are added to `faults`."""
    if not isinstance(table, Mapping):
        faults.append(ConfigFault(path, f"found {shown(table)}, wanted a table"))
        return None
    before = len(faults)
    entries = {str(key).replace("-", "_"): value for key, value in table.items()}
    kinds = {a.name: annotations_of(cls)[a.name] for a in attrs.fields(cls) if a.init and a.name not in INTERNAL}
    values = {
        name: value_of(entries[name], kind, joined(path, name.replace("_", "-")), faults)
        for name, kind in kinds.items()
        if name in entries
    }
    known = [name.replace("_", "-") for name in kinds]
    for name in sorted(entries.keys() - kinds.keys())[: MAX_FAULTS + 1]:
        key = name.replace("_", "-")
        hint = nearest(key, known) or f"known: {', '.join(known)}"
        faults.append(ConfigFault(joined(path, key), "unknown key", hint))
    if len(faults) > before:
        return None
    try:
        return cls(**values)
    except Exception as error:  # noqa: BLE001 - validators of contributed passes may raise anything; it is a fault of the table
        name, message = validator_message(str(error))
        faults.append(ConfigFault(joined(path, name), message))
        return None


def structure(table: Mapping[str, Any], cls: type[T], what: str, source: str) -> T:
    """A record from one table that is not part of the configuration's own tree: the options of a pass, say.

    Raises:
        ConfigError: Its message names `what` as the faulty object and `source` as its source.
    """
    faults: list[ConfigFault] = []
    record: T = record_of(table, cls, "", faults)
    if not faults:
        return record
    first = faults[0]
    facts = [Fact(f.key or "options", f.message, source) for f in faults]
    raise ConfigError(f"{what}: {first.key}: {first.message}", *facts, hint=first.hint if len(faults) == 1 else None)


# ------------------------------------------------------------------------------------------- faults


def joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def validator_message(text: str) -> tuple[str, str]:
    """Validators of attrs begin with the quoted field: `'rounds' must be >= 1: 0`."""
    if text.startswith("'") and "' " in text:
        name, _, message = text[1:].partition("' ")
        return name.replace("_", "-"), message
    return "", text


def faults_error(reported: list[ConfigFault], origins: Mapping[str, str]) -> ConfigError:
    """Return one error for the first `MAX_FAULTS` faults: the first in the message, each as a fact with its source."""
    first, is_all = reported[0], len(reported) <= MAX_FAULTS
    reported = reported[:MAX_FAULTS]
    sources = {path.replace("_", "-"): source for path, source in origins.items()}
    facts = [Fact(f.key or "configuration", f.message, source_of(f.key.replace("_", "-"), sources)) for f in reported]
    more = "" if len(reported) == 1 else f" (and {'' if is_all else 'more than '}{len(reported) - 1} more)"
    hint = first.hint if len(reported) == 1 else None
    facts += [Fact(f.key, f.hint) for f in reported if f.hint and len(reported) > 1]
    return ConfigError(f"configuration: {first.key}: {first.message}{more}", *facts, hint=hint)

"""Strict conversion of configuration tables to records; every fault names its key and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.pipeline.config.records import Configuration, Entry, freeze
from rlx_core.system.records import frozen

__all__ = ["configuration_of", "structure"]

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


class WrongType(TypeError):
    """A value of another type than the record wants; carries both for the message."""

    def __init__(self, actual: object, expected: str) -> None:
        super().__init__(f"found {shown(actual)}, wanted {expected}")


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
    try:
        configuration = converter().structure(table, Configuration)
    except (ClassValidationError, IterableValidationError) as error:
        wrong = [with_option(fault, table, options) for fault in islice(faults(error), MAX_FAULTS + 1)]
        raise faults_error(wrong, origins) from None
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


@cache
def converter() -> cattrs.Converter:
    """Strict: no value is coerced, no key is ignored."""
    result = cattrs.Converter(forbid_extra_keys=True)
    for kind, description in ((bool, "true or false"), (str, "a string"), (int, "an integer"), (float, "a number")):
        result.register_structure_hook(kind, strictly(kind, description))
    result.register_structure_hook_func(is_literal, one_of)
    result.register_structure_hook_func(lambda t: t == tuple[str, ...], list_of_strings)
    result.register_structure_hook_func(lambda t: t == tuple[Entry, ...], list_of_entries)
    result.register_structure_hook_func(lambda t: t == Mapping[str, Any], table_of_anything)
    result.register_structure_hook_func(lambda t: t == Mapping[str, Mapping[str, Any]], table_of_tables)
    result.register_structure_hook_factory(attrs.has, lambda cls, c: record_of(cls, c))
    return result


def strictly(kind: type, expected: str) -> Any:
    def structure(value: object, _: object) -> object:
        if isinstance(value, bool) and kind is not bool:
            raise WrongType(value, expected)
        if kind is float and isinstance(value, int):
            return float(value)
        if not isinstance(value, kind):
            raise WrongType(value, expected)
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
        ConfigError: Its message names `what` as the faulty object and `source` as its source.
    """
    try:
        return converter().structure(table, cls)
    except (ClassValidationError, IterableValidationError) as error:
        all_faults = list(faults(error))
    first = all_faults[0]
    facts = [Fact(f.key or "options", f.message, source) for f in all_faults]
    raise ConfigError(
        f"{what}: {first.key}: {first.message}", *facts, hint=first.hint if len(all_faults) == 1 else None
    )


# ------------------------------------------------------------------------------------------- faults


def faults(error: BaseException, path: str = "") -> Iterator[ConfigFault]:
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
            yield ConfigFault(joined(path, key), "unknown key", nearest(key, known) or f"known: {', '.join(known)}")
    else:
        name, message = validator_message(str(error))
        yield ConfigFault(joined(path, name), message)


def key_of(note: AttributeValidationNote | IterableValidationNote) -> str:
    if isinstance(note, AttributeValidationNote):
        return note.name.replace("_", "-")
    return str(note.index)


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
    facts = [Fact(f.key or "configuration", f.message, source_of(f.key, sources)) for f in reported]
    more = "" if len(reported) == 1 else f" (and {'' if is_all else 'more than '}{len(reported) - 1} more)"
    hint = first.hint if len(reported) == 1 else None
    facts += [Fact(f.key, f.hint) for f in reported if f.hint and len(reported) > 1]
    return ConfigError(f"configuration: {first.key}: {first.message}{more}", *facts, hint=hint)


def source_of(key: str, sources: Mapping[str, str]) -> str | None:
    """Return the file, variable or program that set a key, or the nearest table around it."""
    parts = key.replace("_", "-").split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in sources:
            return sources[".".join(parts[:end])]
    return None

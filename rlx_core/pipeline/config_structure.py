"""Making records of configuration tables: strictly, with every fault named by its key and where it was said."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from attrs import frozen

from rlx_core.errors import ConfigError, Fact, nearest
from rlx_core.pipeline.config import Configuration, Entry, freeze

__all__ = ["configuration_of", "structure"]

T = TypeVar("T")

INTERNAL = frozenset({"origins", "unknown_settings"})


@frozen
class Fault:
    """One thing that is wrong with a value, and the key path it is at."""

    key: str
    message: str
    hint: str | None = None


def shown(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "float", str: "string", list: "list", dict: "table"}
    return f"{value!r} ({names.get(type(value), type(value).__name__)})"


def configuration_of(table: Mapping[str, Any], options: Mapping[str, Any], origins: Mapping[str, str]) -> Configuration:
    """The configuration that a merged table says.

    Args:
        options: Options that plugins contribute, by name.
        origins: Key path → where it was said.

    Raises:
        ConfigError: Every fault in it.
    """
    faults: list[Fault] = []
    found = record(table, Configuration, "", faults)
    if faults:
        raise faults_error([with_option(fault, table, options) for fault in faults], origins)
    assert isinstance(found, Configuration), "a record without faults is one"
    wrong = list(option_faults(found.options, options))
    if wrong:
        raise faults_error(wrong, origins)
    return found


def option_faults(given: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong with the values of contributed options."""
    for name, value in given.items():
        if name not in known:
            yield Fault(f"options.{name}", "no plugin offers this option", option_hint(name, value, known))
        elif not isinstance(value, known[name].type) or (isinstance(value, bool) and known[name].type is not bool):
            yield Fault(f"options.{name}", f"found {shown(value)}, wanted {known[name].type.__name__}")


def option_hint(name: str, value: object, known: Mapping[str, Any]) -> str | None:
    """What was meant by an option that nobody offers: one of a table, whose whole name is a single key, or a name like it."""
    if isinstance(value, Mapping) and any(other.startswith(f"{name}.") for other in known):
        key = next(iter(value), "")
        meant = nearest(f"{name}.{key}", known) if f"{name}.{key}" not in known else None
        return f'an option is one key of [options], dots included: "{name}.{key}" = ...{f"; {meant}" if meant else ""}'
    return nearest(name, known)


def with_option(fault: Fault, table: Mapping[str, Any], known: Mapping[str, Any]) -> Fault:
    """A fault with the hint that the key belongs into `[options]`, where a key of the configuration begins like an option."""
    value = table.get(fault.key)
    if value is None or not any(name == fault.key or name.startswith(f"{fault.key}.") for name in known):
        return fault
    return attrs.evolve(fault, hint=option_hint(fault.key, value, known) or f'[options] "{fault.key}" = ...')


# ---------------------------------------------------------------------------------------- structure

PLAIN: Mapping[Any, str] = {bool: "true or false", str: "a string", int: "an integer", float: "a number"}
"""What messages call the plain kinds."""


def is_list(value: object, of: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, of) for v in value)


def is_table(value: object, of: Any = object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(v, of) for v in value.values())


WHOLE: tuple[tuple[Any, str, Callable[[object], bool]], ...] = (
    (tuple[str, ...], "a list of strings", lambda v: is_list(v, str)),
    (tuple[Entry, ...], "a list of names and { name = { options } }", lambda v: is_list(v, str | Mapping)),
    (Mapping[str, Any], "a table", is_table),
    (Mapping[str, Mapping[str, Any]], "a table of tables", lambda v: is_table(v, Mapping)),
)
"""Kinds that are taken or refused as a whole: annotation, what messages call it, and whether a value is one."""


def read(value: object, kind: Any, key: str, faults: list[Fault]) -> Any:
    """A value as a field of that kind has it: nothing is coerced, no key is ignored. What is wrong is added to `faults`."""
    for annotation, wanted, is_one in WHOLE:
        if kind == annotation:
            return freeze(value) if is_one(value) else refuse(value, wanted, key, faults)
    if kind in PLAIN:
        return plain(value, kind, key, faults)
    if isinstance(kind, type) and attrs.has(kind):
        return record(value, kind, key, faults)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        choices = [each.value for each in kind]
        return kind(value) if value in choices else refuse(value, " or ".join(map(str, choices)), key, faults)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value if value in arguments else refuse(value, " or ".join(map(str, arguments)), key, faults)
    if origin in (Union, types.UnionType):
        return one_of(value, arguments, key, faults)
    if origin in (tuple, list, frozenset, set, Sequence) and arguments:
        return items(value, origin, arguments, key, faults)
    if origin in (dict, Mapping) and arguments:
        return entries(value, arguments[1], key, faults)
    return value


def refuse(value: object, wanted: str, key: str, faults: list[Fault]) -> None:
    faults.append(Fault(key, f"found {shown(value)}, wanted {wanted}"))


def plain(value: object, kind: type, key: str, faults: list[Fault]) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_one = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return value if is_one else refuse(value, PLAIN[kind], key, faults)


def one_of(value: object, kinds: Sequence[Any], key: str, faults: list[Fault]) -> Any:
    """The first of several kinds that the value is; `None` is said by leaving the key away, or by a program."""
    if value is None and type(None) in kinds:
        return None
    tried: list[list[Fault]] = []
    for kind in kinds:
        if kind is not type(None):
            wrong: list[Fault] = []
            found = read(value, kind, key, wrong)
            if not wrong:
                return found
            tried.append(wrong)
    faults += tried[0]
    return None


def items(value: object, origin: Any, kinds: Sequence[Any], key: str, faults: list[Fault]) -> Any:
    """A list, each item at its number; a tuple of fixed length has a kind for each place."""
    is_fixed = origin is tuple and kinds[-1] is not Ellipsis
    if not isinstance(value, list | tuple | set | frozenset) or (is_fixed and len(value) != len(kinds)):
        return refuse(value, f"a list of {len(kinds)}" if is_fixed else "a list", key, faults)
    each = kinds if is_fixed else [kinds[0]] * len(value)
    made = (read(v, k, joined(key, str(i)), faults) for i, (v, k) in enumerate(zip(value, each, strict=True)))
    return (tuple if origin is Sequence else origin)(made)


def entries(value: object, kind: Any, key: str, faults: list[Fault]) -> Any:
    """A table of values of one kind."""
    if not isinstance(value, Mapping):
        return refuse(value, "a table", key, faults)
    return {str(name): read(each, kind, joined(key, str(name)), faults) for name, each in value.items()}


def record(value: object, cls: type, key: str, faults: list[Fault]) -> Any:
    """A record from a table whose keys may be written with hyphens."""
    if not isinstance(value, Mapping):
        return refuse(value, "a table", key, faults)
    table = {str(k).replace("-", "_"): v for k, v in value.items()}
    before = len(faults)
    given: dict[str, Any] = {}
    kinds = kinds_of(cls) if table else {}
    fields = {a.name: a for a in attrs.fields(cls) if a.name not in INTERNAL}
    for name, field in fields.items():
        here = joined(key, name.replace("_", "-"))
        if name in table:
            given[field.alias] = read(table[name], kinds.get(name, Any), here, faults)
        elif field.default is attrs.NOTHING:
            faults.append(Fault(here, "is required"))
    known = [name.replace("_", "-") for name in fields]
    for name in sorted(table.keys() - fields.keys()):
        told = name.replace("_", "-")
        faults.append(Fault(joined(key, told), "unknown key", nearest(told, known) or f"known: {', '.join(known)}"))
    if len(faults) > before:
        return None
    try:
        return cls(**given)
    except (TypeError, ValueError) as error:
        name, rest = validator_message(str(error))
        faults.append(Fault(joined(key, name), rest))
        return None


@cache
def kinds_of(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def structure(table: Mapping[str, Any], cls: type[T], what: str, source: str) -> T:
    """A record from one table that is not part of the configuration's own tree: the options of a pass, say.

    Raises:
        ConfigError: `what` is said to have the fault, `source` to be where it was said.
    """
    found: list[Fault] = []
    made = record(table, cls, "", found)
    if not found:
        assert isinstance(made, cls), "a record without faults is one"
        return made
    first = found[0]
    facts = [Fact(f.key or "options", f.message, source) for f in found]
    raise ConfigError(f"{what}: {first.key}: {first.message}", *facts, hint=first.hint if len(found) == 1 else None)


# ------------------------------------------------------------------------------------------- faults


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

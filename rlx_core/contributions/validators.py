"""Validators of the fields of records; every error has the field, the value and the expected form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import Attribute

from rlx_core.errors import PluginError, nearest

DOMAIN_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+")
BARE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
OPTION_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*")
VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")


def refusal(record: object, label: str, actual: object, expected: str, hint: str | None = None) -> PluginError:
    """Return the error for an invalid field of a record: the field, its value, and the expected form."""
    return PluginError(f"{type(record).__name__}: {label} is {actual!r}, not {expected}", hint=hint)


def domain_name(record: object, attribute: Attribute[str], value: object) -> None:
    """Validator: a lower-case `domain.name`."""
    if not isinstance(value, str) or not DOMAIN_NAME.fullmatch(value):
        raise refusal(record, attribute.name, value, "a lower-case `domain.name`")


def bare_name(record: object, attribute: Attribute[str], value: object) -> None:
    """Validator: one lower-case word."""
    if not isinstance(value, str) or not BARE_NAME.fullmatch(value):
        raise refusal(record, attribute.name, value, "one lower-case word")


def option_name(record: object, attribute: Attribute[str], value: object) -> None:
    """Validator: a bare word, or words joined by dots."""
    if not isinstance(value, str) or not OPTION_NAME.fullmatch(value):
        raise refusal(record, attribute.name, value, "a lower-case option name")


def text(record: object, attribute: Attribute[Any], value: object) -> None:
    """Validator: a string."""
    if not isinstance(value, str):
        raise refusal(record, attribute.name, value, "a string")


def integer(record: object, attribute: Attribute[Any], value: object) -> None:
    """Validator: an integer, and not a boolean."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal(record, attribute.name, value, "an integer")


def names(record: object, attribute: Attribute[Any], value: object) -> None:
    """Validator: a tuple of strings; a lone string is refused because iterating it would give letters."""
    # Most tuples are empty, and a process runs this 600 times before it loads anything.
    if not isinstance(value, tuple) or (value and not all(isinstance(each, str) for each in value)):
        raise refusal(record, attribute.name, value, "a tuple of names")


def listed(value: object) -> object:
    """Converter: a list becomes a tuple."""
    return tuple(value) if isinstance(value, list) else value


def suffixes(record: object, attribute: Attribute[Any], value: object) -> None:
    """Validator: file suffixes with their dot, in lower case, at least one."""
    names(record, attribute, value)
    assert isinstance(value, tuple)  # `names` has checked it
    if not value or not all(len(each) > 1 and each.startswith(".") and each == each.lower() for each in value):
        raise refusal(record, attribute.name, value, "lower-case suffixes such as `.ext`")


def environment_variable(record: object, attribute: Attribute[Any], value: object) -> None:
    """Validator: an upper-case environment variable, or nothing."""
    if value is not None and not (isinstance(value, str) and VARIABLE.fullmatch(value)):
        raise refusal(record, attribute.name, value, "an upper-case environment variable")


class OneOf:
    """Validator: one of a few words, with the nearest one as the hint."""

    def __init__(self, *words: str | None) -> None:
        self.words = words

    def __call__(self, record: object, attribute: Attribute[Any], value: object) -> None:
        if value in self.words:
            return
        spelled = [word for word in self.words if word is not None]
        hint = nearest(value, spelled) if isinstance(value, str) else None
        raise refusal(record, attribute.name, value, "one of " + ", ".join(spelled), hint)


def is_plain(value: object) -> bool:
    """Return whether a value consists of types that a TOML file can store, so that it can be compared, hashed and written."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str)

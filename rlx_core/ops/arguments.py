"""Validation of the arguments of public functions: an invalid argument is refused with its name, before anything is built.

Ops validate attributes against their annotations (`rlx_core.ir.setting`); this module validates the arguments that functions
process before an op sees them.
arguments before an op sees them.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import ConfigError


def whole(what: str, value: Any, least: int | None = None) -> int:
    """Return a Python integer of at least `least`; `what` names the function and the argument.

    Raises:
        ConfigError: It is not an integer, a bool, or too small.
    """
    index = None
    if not isinstance(value, bool | np.bool_):
        with contextlib.suppress(TypeError):
            index = operator.index(value)
    if index is None or (least is not None and index < least):
        bound = "" if least is None else f" of at least {least}"
        raise ConfigError(f"{what} must be an integer{bound}, not {value!r} ({type(value).__name__})")
    return index


def names(what: str, value: Any, hint: str) -> tuple[str, ...]:
    """Return one name or several as a tuple.

    Raises:
        ConfigError: An item is not a string; `hint` shows a valid value.
    """
    result = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for each in result:
        if not isinstance(each, str):
            raise ConfigError(f"{what} takes names of arguments, not {each!r}", hint=hint)
    return result


def flag(what: str, value: Any) -> bool:
    """Return a bool; other values are not converted to one.

    Raises:
        ConfigError: It is not a bool.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ConfigError(f"{what} must be True or False, not {value!r} ({type(value).__name__})")


def number(what: str, value: Any) -> float:
    """Return a real number as a Python float.

    Raises:
        ConfigError: It is not a number, or it is a bool.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return (
            value
            if not isinstance(value, np.generic)
            else int(value)
            if isinstance(value, np.integer)
            else float(value)
        )
    raise ConfigError(f"{what} must be a number, not {value!r} ({type(value).__name__})")


def listed(what: str, values: Any) -> tuple[Any, ...]:
    """Return the items of a sequence, which may be the rows of an array.

    Raises:
        ConfigError: It is not a sequence: it has no order, or is a string.
    """
    if isinstance(values, str | bytes | dict | set | frozenset) or not isinstance(values, Iterable):
        raise ConfigError(f"{what} must be a sequence, not {values!r} ({type(values).__name__})")
    try:
        return tuple(values)
    except TypeError as error:  # an array without axes has `__iter__`, which raises
        raise ConfigError(f"{what} must be a sequence ({error})") from None


def choice(what: str, value: Any, options: Sequence[str]) -> str:
    """Return one of a few options.

    Raises:
        ConfigError: It is a different value.
    """
    if isinstance(value, str) and value in options:
        return value
    raise ConfigError(f"{what} must be {', '.join(options[:-1])} or {options[-1]}, not {value!r}")

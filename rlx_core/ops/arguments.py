"""Reading the arguments of public functions: what is of another kind is refused with its name, before anything is built.

Attributes are held to their annotations by the ops themselves (`rlx_core.ir.setting`); here is what functions do with their
arguments before an op sees them.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx_core.errors import ConfigError

__all__ = ["choice", "flag", "listed", "names", "number", "whole"]


def whole(what: str, value: Any, least: int | None = None) -> int:
    """A Python integer of at least `least`; `what` names the function and the argument.

    Raises:
        ConfigError: It is none, a bool, or too small.
    """
    found = None
    if not isinstance(value, bool | np.bool_):
        with contextlib.suppress(TypeError):
            found = operator.index(value)
    if found is None or (least is not None and found < least):
        bound = "" if least is None else f" of at least {least}"
        raise ConfigError(f"{what} must be an integer{bound}, not {value!r} ({type(value).__name__})")
    return found


def names(what: str, value: Any, hint: str) -> tuple[str, ...]:
    """One name, or several.

    Raises:
        ConfigError: Something is no text; `hint` shows what would be right.
    """
    found = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for each in found:
        if not isinstance(each, str):
            raise ConfigError(f"{what} takes names of arguments, not {each!r}", hint=hint)
    return found


def flag(what: str, value: Any) -> bool:
    """True or false; what is neither is not made one of them.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ConfigError(f"{what} must be True or False, not {value!r} ({type(value).__name__})")


def number(what: str, value: Any) -> float:
    """A real number, as Python has it.

    Raises:
        ConfigError: It is none, or a bool.
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
    """The items of a sequence, an array's rows among them.

    Raises:
        ConfigError: It is none, or has no order or only a text's.
    """
    if isinstance(values, str | bytes | dict | set | frozenset) or not isinstance(values, Iterable):
        raise ConfigError(f"{what} must be a sequence, not {values!r} ({type(values).__name__})")
    try:
        return tuple(values)
    except TypeError as error:  # an array without axes, which is iterable by name only
        raise ConfigError(f"{what} must be a sequence ({error})") from None


def choice(what: str, value: Any, options: Sequence[str]) -> str:
    """One of a few words.

    Raises:
        ConfigError: It is another.
    """
    if isinstance(value, str) and value in options:
        return value
    raise ConfigError(f"{what} must be {', '.join(options[:-1])} or {options[-1]}, not {value!r}")

"""Validators and converters of attributes, which refuse an invalid value at its definition, with an rlx error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Attribute

from rlx_core.errors import ConfigError, nearest
from rlx_core.ir.dtypes import DType, dtype

Validator = Callable[[Any, "Attribute[Any]", Any], None]


def whole(least: int, *, optional: bool = False) -> Validator:
    """Return a validator for an integer of at least `least`."""

    def check(op: Any, attribute: Attribute[Any], value: Any) -> None:
        if optional and value is None:
            return
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{attribute.name} must be an integer of at least {least}, not {value!r}")

    return check


def number(least: float, *, is_open: bool = False, optional: bool = False) -> Validator:
    """Return a validator for a number of at least `least`, or above it if the range is open; NaN is refused."""
    requirement = f"above {least}" if is_open else f"of at least {least}"

    def check(op: Any, attribute: Attribute[Any], value: Any) -> None:
        if optional and value is None:
            return
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (value > least or (value == least and not is_open)):
            raise ConfigError(f"{attribute.name} must be a number {requirement}, not {value!r}")

    return check


def one_of(*options: Any) -> Validator:
    """Return a validator for one of a few values."""

    def check(op: Any, attribute: Attribute[Any], value: Any) -> None:
        if value not in options:
            listed = ", ".join(map(repr, options))
            hint = nearest(value, [o for o in options if isinstance(o, str)]) if isinstance(value, str) else None
            raise ConfigError(f"{attribute.name} must be one of {listed}, not {value!r}", hint=hint)

    return check


def optional_dtype(spelling: Any) -> DType | None:
    """Return a dtype attribute from a dtype or its name."""
    return None if spelling is None else dtype(spelling)

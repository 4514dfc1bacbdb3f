"""The table of handlers: one function of rlx values for each overload of an ATen op, by the overload's name.

A handler has the parameters of the op's schema. Arguments that only describe the storage of a result (device, layout, memory
format) are removed before, and torch's dtypes are converted to rlx's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["DRAWS", "TABLE", "aten", "rows"]

Handler: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Handler)

TABLE: Final[dict[str, Handler]] = {}
"""Overload (`add.Tensor`) → what computes it."""

DRAWS: Final[set[str]] = set()
"""Overloads that generate random numbers, so that their caller passes a key."""


def aten(*overloads: str, draws: bool = False) -> Callable[[F], F]:
    """Register a function as the handler of overloads; a name without a dot is that of the overload `default`."""

    def register(function: F) -> F:
        for overload in overloads:
            name = overload if "." in overload else f"{overload}.default"
            assert name not in TABLE, f"{name} has two handlers: {TABLE[name]} and {function}"
            TABLE[name] = function
            if draws:
                DRAWS.add(name)
        return function

    return register


def rows(handlers: Mapping[str, Handler]) -> None:
    """Register handlers that are one expression each; a key may list several overloads."""
    for overloads, function in handlers.items():
        aten(*overloads.split())(function)

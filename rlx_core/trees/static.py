"""Arguments that are no arrays: constants of the program, as pytrees without leaves that are compared by their structure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optree
from optree.registry import __GLOBAL_NAMESPACE as EVERYWHERE

from rlx_core.errors import AxisError, Fact, TraceError, UnknownNameError, nearest
from rlx_core.ir.op import exact
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import function_name


class Static:
    """A value that is part of a program. Two are equal if they are of one type and equal."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._key = type(value), exact(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Static({self.value!r})"


def _flatten(static: Any) -> Any:
    return (), static, ()


def _unflatten(static: Any, leaves: object) -> Any:
    return static


_CONTAINER: Any = Static  # required by optree
optree.register_pytree_node(_CONTAINER, _flatten, _unflatten, namespace=EVERYWHERE)


@frozen
class StaticArguments:
    """Which arguments of a function are static.

    Attributes:
        what: The caller, for errors.
        function: The function.
        parameters: Its parameters.
        names: The names of the static ones.
    """

    what: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    names: frozenset[str]

    @classmethod
    def of(
        cls, what: str, function: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str]
    ) -> StaticArguments:
        """Return the static arguments at some positions and names.

        Raises:
            UnknownNameError, AxisError: The function has no such parameter.
        """
        positions = [numbers] if isinstance(numbers, int) else list(numbers)
        requested = [names] if isinstance(names, str) else list(names)
        parameters = list(inspect.signature(function).parameters) if positions or requested else []
        for name in requested:
            if name not in parameters:
                raise UnknownNameError(
                    f"{what}: {function_name(function)} has no parameter {name!r}",
                    Fact("parameters", ", ".join(parameters)),
                    hint=nearest(name, parameters),
                )
        for number in positions:
            if not -len(parameters) <= number < len(parameters):
                raise AxisError(
                    f"{what}: {function_name(function)} has {len(parameters)} parameters, and no number {number}"
                )
        return cls(
            what, function, tuple(parameters), frozenset([*requested, *(parameters[number] for number in positions)])
        )

    def unwrapping(self) -> Callable[..., Any]:
        """The function, for arguments that are wrapped."""
        function = self.function

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*map(_bare, args), **{name: _bare(value) for name, value in kwargs.items()})

        return call

    def wrapped(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with the static ones wrapped.

        Raises:
            TraceError: A static argument cannot be compared, because it has no hash, or is nested too deeply for one.
        """
        by_place = (self._one(name, value) for name, value in zip(self.parameters, args, strict=False))
        return (*by_place, *args[len(self.parameters) :]), {
            name: self._one(name, value) for name, value in kwargs.items()
        }

    def _one(self, name: str, value: Any) -> Any:
        if name not in self.names:
            return value
        try:
            static = Static(value)
            hash(static)
        except RecursionError:
            raise TraceError(
                f"{self.what}: argument {name} is static, and nested deeper than Python computes a hash of",
                hint="a flat tuple, or an object that is compared by its identity",
            ) from None
        except TypeError as error:
            raise TraceError(
                f"{self.what}: argument {name} is static, and {error}",
                hint="a tuple has a hash where a list has none; what holds arrays is not static",
            ) from None
        return static


def _bare(value: Any) -> Any:
    return value.value if isinstance(value, Static) else value

"""The handlers of an importer: one record for each operation of the other system, by the operation's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from rlx_core.errors import ConfigError, Fact
from rlx_core.system.records import frozen

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound="Handler")


@frozen
class Handler:
    """The implementation of an operation; importers add fields for properties of it.

    Attributes:
        function: A function of the operands, and of further arguments of the importer, that calls rlx's functions.
    """

    function: Callable[..., Any]


class HandlerTable(Mapping[str, H], Generic[H]):
    """Operation → handler, a mapping that the modules of a package fill.

    Args:
        record: The class of the handlers.
        registration: How to register a handler for an operation `{}`, for reports.
        package: The package whose modules register handlers when they are imported; the first access imports them.
        alternatives: Operation without a handler → an alternative to it.
    """

    def __init__(
        self,
        record: type[H],
        registration: str,
        package: str | None = None,
        alternatives: Mapping[str, str] | None = None,
    ) -> None:
        self.package, self.registration, self.alternatives = package, registration, alternatives or {}
        self._record = record
        self._handlers: dict[str, H] = {}
        self._is_loaded = False

    def register(self, *operations: str, **properties: Any) -> Callable[[F], F]:
        """Return a decorator that registers a function as the handler of operations.

        Raises:
            ConfigError: An operation has a handler.
        """

        def enter(function: F) -> F:
            for operation in operations:
                self._enter(operation, self._record(function, **properties))
            return function

        return enter

    def names(self) -> list[str]:
        """Return the operations with a handler, in alphabetical order."""
        return sorted(self)

    def _enter(self, operation: str, handler: H) -> None:
        present = self._handlers.setdefault(operation, handler)
        if present is not handler:
            facts = [Fact(label, _origin(each)) for label, each in (("first", present), ("second", handler))]
            raise ConfigError(f"operation {operation} has two handlers", *facts)

    def _loaded(self) -> dict[str, H]:
        if self.package is not None and not self._is_loaded:
            modules = pkgutil.walk_packages(importlib.import_module(self.package).__path__, f"{self.package}.")
            for name in sorted(module.name for module in modules):
                importlib.import_module(name)
            self._is_loaded = True  # not before: another thread would see a part of the table
        return self._handlers

    def __getitem__(self, operation: str) -> H:
        return self._loaded()[operation]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())


def register_rows(
    register: Callable[..., Callable[[Any], Any]], handlers: Mapping[str, Callable[..., Any]], **properties: Any
) -> None:
    """Register handlers of one expression each by the decorator of a table; a key may list several operations."""
    for operations, function in handlers.items():
        register(*operations.split(), **properties)(function)


def _origin(handler: Handler) -> str:
    return f"{handler.function.__module__}.{getattr(handler.function, '__qualname__', handler.function)}"

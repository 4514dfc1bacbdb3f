"""Tables that a later layer fills: how this one calls what it must not depend on."""

from __future__ import annotations

import importlib
from typing import TypeVar

__all__ = ["Registered"]

K = TypeVar("K")
V = TypeVar("V")


class Registered(dict[K, V]):
    """What modules of a later layer enter when they are imported, which they are when something is asked for that is missing.

    Args:
        modules: Who fills the table, by name; nothing else of them is known here.
    """

    def __init__(self, *modules: str) -> None:
        super().__init__()
        self.modules = modules

    def __missing__(self, key: K) -> V:
        for module in self.modules:
            importlib.import_module(module)
        found = self.get(key)
        assert found is not None, f"{', '.join(self.modules)} enter {key!r}"
        return found

"""Tables that a later layer fills, so that this layer can call functions of modules on which it must not depend.

Their modules are imported on the first missing key; those of `OpModules` by the op that is looked up.
"""

from __future__ import annotations

import importlib
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Registered(dict[K, V]):
    """A table filled by modules of a later layer when they are imported, which happens on the first missing key.

    Args:
        modules: The modules that fill the table, by name; nothing else of them is known here.
    """

    def __init__(self, *modules: str) -> None:
        super().__init__()
        self.modules = modules

    def __missing__(self, key: K) -> V:
        for module in self.modules:
            importlib.import_module(module)
        entry = self.get(key)
        assert entry is not None, f"{', '.join(self.modules)} enter {key!r}"
        return entry

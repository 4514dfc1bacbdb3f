"""Deprecated names of public modules: they work for two minor releases, and warn with the new name; and moved modules."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def deprecated_names(module: str, names: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """A `__getattr__` for a module whose names were replaced.

    Args:
        module: The module's full name.
        names: Deprecated name → the address of its replacement (`package.module:name`), and the release that removes it.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        address, release = names[name]
        place, _, attribute = address.partition(":")
        warnings.warn(
            f"{module}.{name} is deprecated and is removed in rlx-core {release}: use {place}.{attribute}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(place), attribute)

    return get


def moved_module(module: str, address: str, distribution: str) -> ImportError:
    """Return the error that the import of a module raises which is in another package now, with the new name and its package."""
    return ImportError(f"{module} is {address} now: python -m pip install {distribution}", name=module)

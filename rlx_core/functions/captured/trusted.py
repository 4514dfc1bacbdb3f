"""Classification of code as part of the environment, which is assumed constant: its functions are not followed.

Part of the environment are the standard library, everything in site-packages, rlx and its plugins. Modules whose purpose is
state outside of the program (random numbers, clocks, the environment, files) cannot be compared.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Final

from rlx_core.plugins import PluginOrigin, installed_plugins

OUTSIDE: Final = frozenset(
    "_contextvars _io _random _socket contextvars getpass glob io nt numpy.random os platform posix random secrets select "  # noqa: SIM905
    "shutil socket subprocess tempfile time uuid".split()
)
"""Modules that read state outside of the program or change by themselves."""

_PACKAGES: Final = ("site-packages", "dist-packages")


def has_outside_state(name: str | None) -> bool:
    """Return whether a module, by its name, reads state that cannot be compared."""
    if not name:
        return False
    return name in OUTSIDE or name.startswith("numpy.random.")


@cache
def _folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    standard = {os.path.realpath(paths[each]) for each in ("stdlib", "platstdlib")}
    return (*(f"{each}{os.sep}" for each in sorted(standard)), f"{Path(__file__).resolve().parents[2]}{os.sep}")


@lru_cache(maxsize=4096)
def is_own_code(file: str) -> bool:
    """Return whether code from a file is rlx's."""
    return os.path.realpath(file).startswith(_folders()[-1])


@cache
def _plugin_packages() -> frozenset[str]:
    entries = (entry for entry in installed_plugins().entries if entry.origin is PluginOrigin.INSTALLED)
    return frozenset(entry.module.partition(".")[0] for entry in entries)


@lru_cache(maxsize=4096)
def is_trusted_code(file: str) -> bool:
    """Return whether code from a file, by its name in code objects, is part of the environment."""
    if file.startswith("<frozen"):
        return True
    if file.startswith("<"):
        return False  # a notebook, the prompt, `exec`
    return any(part in _PACKAGES for part in Path(file).parts) or os.path.realpath(file).startswith(_folders())


def is_trusted_name(name: str) -> bool:
    """Return whether a module, by its name, is part of the environment."""
    module = sys.modules.get(name)
    if module is not None:
        return is_trusted_module(module)
    return name != "__main__" and name.partition(".")[0] in sys.stdlib_module_names


def is_trusted_module(module: ModuleType) -> bool:
    """Return whether a module is part of the environment."""
    if module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return is_trusted_code(file) or module.__name__.partition(".")[0] in _plugin_packages()
    # Modules without a file are built in, are packages without `__init__`, or were created at run time.
    return module.__name__ in sys.builtin_module_names or _is_trusted_folder(module)


def _is_trusted_folder(module: ModuleType) -> bool:
    folders = list(getattr(module, "__path__", ()))
    return bool(folders) and all(is_trusted_code(os.path.join(folder, "__init__.py")) for folder in folders)

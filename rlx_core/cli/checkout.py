"""Files that only a checkout of the repository has, for commands that run from it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from rlx_core.errors import ConfigError, Fact

ROOT: Final = Path(__file__).resolve().parents[2]

_NEEDED: Final = {"demo": "examples/digits.py", "bench": "benchmarks/command.py"}
"""The file that a command runs, where it runs one of the repository's."""


def can_work(command: str) -> bool:
    """Return whether the files of a command are available; most commands need none."""
    return command not in _NEEDED or (ROOT / _NEEDED[command]).exists()


def from_checkout(command: str) -> Path:
    """The root of the checkout.

    Raises:
        ConfigError: rlx runs from an installed package, which does not have the files of the command.
    """
    if not can_work(command):
        raise ConfigError(
            f"{command}: {_NEEDED[command]} is part of the repository, and not of the installed package",
            Fact("looked in", ROOT),
            hint=f"in a checkout: `make {command}`",
        )
    return ROOT


def loaded(path: Path, name: str) -> ModuleType:
    """A file of the checkout as a module called `name`: the checkout is no package, and is not put on `sys.path`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a path to a .py file has a loader"
    assert spec.loader is not None, "a path to a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

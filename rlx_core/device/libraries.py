"""Libraries of a device's maker that are called by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rlx_core.errors import DeviceUnavailableError, Fact

__all__ = ["first_that_loads"]

FEW: Final = 3
"""Places where a library was looked for that an error lists."""


def first_that_loads(paths: Iterable[str], missing: str, install: str, beside: str = "") -> ctypes.CDLL:
    """The first library that loads.

    Args:
        paths: Where it may lie, best first.
        missing: What an error says is not installed.
        install: What mends that.
        beside: A pattern of files in its folder that it asks the system for by name, which finds them once they are loaded.

    Raises:
        DeviceUnavailableError: None does.
    """
    failed: list[Fact] = []
    for path in paths:
        others = sorted(Path(path).parent.glob(beside)) if beside and Path(path).is_absolute() else []
        try:
            for other in others:
                ctypes.CDLL(str(other))
            return ctypes.CDLL(path)
        except OSError as error:
            failed.append(Fact("tried", path, str(error)))
    raise DeviceUnavailableError(f"{missing} is not installed", *failed[:FEW], hint=install)

"""Libraries of a device: Python packages that drive it, and its vendor's libraries, which are called by ctypes."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rlx_core.errors import DeviceUnavailableError, Fact
from rlx_core.errors.lacks import is_lack

FEW: Final = 3
"""Number of failed paths of a library that an error lists."""


def first_that_loads(paths: Iterable[str], missing: str, install: str, companions: str = "") -> ctypes.CDLL:
    """The first library that loads.

    Args:
        paths: Where it may lie, best first.
        missing: Name of the library, as the error "… is not installed" shows it.
        install: The hint for installing it.
        companions: Pattern of libraries in the same folder that it loads by name; they are loaded first, so that the loader
            resolves them.

    Raises:
        DeviceUnavailableError: None does.
    """
    failed: list[Fact] = []
    for path in paths:
        others = sorted(Path(path).parent.glob(companions)) if companions and Path(path).is_absolute() else []
        try:
            for other in others:
                ctypes.CDLL(str(other))
            return ctypes.CDLL(path)
        except OSError as error:
            failed.append(Fact("tried", path, str(error)))
    raise DeviceUnavailableError(f"{missing} is not installed", *failed[:FEW], hint=install)


def imported(name: str, target: str, *, install: str, needs: Iterable[str], oldest: str = "") -> Any:
    """A module that drives a device.

    Args:
        name: The module, in a distribution of its name if `oldest` is given.
        target: The target that needs it, for errors.
        install: The hint for installing or upgrading it.
        needs: Names in it without which the module is incomplete, or a different one.
        oldest: The oldest version that will do.

    Raises:
        DeviceUnavailableError: It is not there, raises whatever it does when it is imported, is too old, or is not whole.
    """
    has = installed_version(name) if oldest else ""
    if has and _numbers(has) < _numbers(oldest):
        raise DeviceUnavailableError(
            f"{target}: {name} {has} is too old; it takes {oldest} or newer", hint=f"{install} --upgrade"
        )
    try:
        module = importlib.import_module(name)
        for each in needs:
            getattr(module, each)
    except (Exception, SystemExit) as error:  # an incomplete wheel, or one for another system
        if is_lack(error):
            raise
        cause = Fact(name, type(error).__name__, str(error))
        raise DeviceUnavailableError(f"{target}: {name} cannot be imported", cause, hint=install) from None
    return module


def installed_version(name: str) -> str:
    """Return the version of a distribution; empty if it was not installed as one."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    """The parts of a release.

    >>> _numbers("0.9.1.post2") < _numbers("0.10")
    True
    """
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()

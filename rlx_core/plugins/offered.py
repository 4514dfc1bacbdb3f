"""Functions that plugins offer as attributes of `rlx_core`: located by package metadata, before any of their code runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.plugins.conditions import VERBS
from rlx_core.plugins.host import default_host

KIND = "functions"


def offered_function(name: str) -> Callable[..., Any] | None:
    """The function of a name, imported; `None` if no package declares it.

    Raises:
        PluginError: A package declares it, and its plugin failed, is blocked, or does not provide it.
    """
    host, condition = default_host(), f"{VERBS[KIND]}.{name}"
    if not any(condition in entry.conditions for entry in host.entries):
        return None
    function: Callable[..., Any] = host.load(KIND, name)
    return function

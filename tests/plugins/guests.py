"""Plugins that are there for one test, beside everything that is installed."""

from typing import Any

import numpy as np

from rlx_core.contributions import (
    Contribution,
)
from rlx_core.hooks import HOOKS, hookimpl
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy, default_host

EVERYWHERE = ("target", "target.cpu", "compile", "domain.rlx", "domain.linalg")
X = np.float32([0.5, 1.5])


def plugin_of(*given: tuple[str, list[Contribution]]) -> object:
    """A plugin with these records, by kind."""
    hooks = {kind: hook for hook, kind in HOOKS.items()}
    content = {hooks[kind]: hookimpl(lambda self, found=found: found) for kind, found in given}
    return type("Acme", (), content)()


def host_with(*plugins: object, **policy: Any) -> PluginHost:
    """Everything installed, and these plugins, which are active whenever anything is compiled or transformed."""
    entries = [
        PluginEntry(name, plugin=plugin, distribution=f"{name}-rlx", version="1.0", when=EVERYWHERE)
        for name, plugin in zip(("acme", "other"), plugins, strict=False)
    ]
    return PluginHost([*default_host().entries, *entries], policy=PluginPolicy.of(**policy))

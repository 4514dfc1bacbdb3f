"""Schemes by name, from all plugins."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rlx_core.ir.schemes import Scheme
from rlx_core.pipeline.contributed import expectation
from rlx_core.pipeline.set_up import full_name
from rlx_core.plugins.host import PluginHost


def scheme_of(name: str | Scheme, block: int | None, host: PluginHost) -> Scheme:
    """Return a scheme, with blocks of another size if one is given.

    Raises:
        UnknownNameError: No plugin provides a scheme of this name.
        PluginError: It does not load, or is no scheme.
    """
    scheme = name if isinstance(name, Scheme) else scheme_class(full_name(name), host)()
    return scheme if block is None else evolve(scheme, block=block)


def scheme_class(name: str, host: PluginHost) -> Any:
    """Return the class of a scheme by its full name; errors are those of `scheme_of`."""
    spec = host.require("schemes", name)
    registry = host.registry()
    return registry.load("schemes", name, expectation("schemes", spec, registry))

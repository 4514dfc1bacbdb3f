"""The functions by which eager calls compute: those of the target that programs are compiled for by default."""

from __future__ import annotations

from rlx_core.errors import DeviceError, PluginError
from rlx_core.ir.element_functions import PROVIDERS, ElementFunctions
from rlx_core.pipeline.set_up import set_up
from rlx_core.pipeline.targets import preferred_target, wanted_target
from rlx_core.plugins import PluginHost, default_host

_latest: list[tuple[PluginHost, ElementFunctions | None]] = []
"""The functions of the default host's target. The configuration is read once for each host, as `jit` reads it once for each
variant."""


def preferred() -> ElementFunctions | None:
    """Return the functions of the target of the nearest configuration; `None` where nothing can be compiled for.

    Raises:
        ConfigError: The configuration is wrong.
    """
    host = default_host()
    if not _latest or _latest[0][0] is not host:
        _latest[:] = [(host, functions_of_default())]
    return _latest[0][1]


def functions_of_default() -> ElementFunctions | None:
    """Read the configuration, and return the functions of its target."""
    host, configuration = set_up(None, None)
    try:
        requested = configuration.target
        _, backend = preferred_target(host) if requested is None else wanted_target(host, requested)
        return backend.target_for(configuration.options).element_functions
    except (DeviceError, PluginError):
        return None  # without a backend the NumPy references serve all modes


PROVIDERS["preferred"] = preferred

"""The default host, used where the caller passes none."""

from __future__ import annotations

import warnings

from rlx_core.plugins.host import PluginHost
from rlx_core.plugins.policy import PluginPolicy
from rlx_core.system.locks import Lock

_lock = Lock("the list of plugin hosts")
_hosts: list[PluginHost] = []  # none or one; built on first use, so that importing rlx reads no metadata
_restricted: dict[str, PluginHost] = {}


def default_host() -> PluginHost:
    """The host of everything that is installed, as the environment restricts it; built on first use."""
    with _lock:
        if _hosts:
            return _hosts[0]
        host = announced(PluginHost())
        if not _hosts:  # a signal handler may have built one meanwhile
            _hosts.append(host)
        return _hosts[0]


def host_with(policy: PluginPolicy) -> PluginHost:
    """The host of everything that is installed, as `policy` restricts it; equal policies share one."""
    key = repr(policy)
    with _lock:
        return _restricted.get(key) or _restricted.setdefault(key, announced(PluginHost(policy=policy)))


def announced(host: PluginHost) -> PluginHost:
    """Return the host after a warning for each word of its policy that matches no plugin: a misspelt plugin is not blocked."""
    for note in host.notes:
        warnings.warn(f"plugins: {note}", RuntimeWarning, stacklevel=3)
    return host


def set_default_host(host: PluginHost | None) -> PluginHost | None:
    """Use another host by default from now on (`None`: build a new one); returns the one before."""
    with _lock:
        before = _hosts[0] if _hosts else None
        _hosts[:] = [] if host is None else [host]
        return before

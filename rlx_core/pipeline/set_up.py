"""The plugins and the configuration of a call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from rlx_core.errors import ConfigError, nearest
from rlx_core.pipeline.config.reading import read_sources
from rlx_core.pipeline.config.records import Configuration, PluginConfig
from rlx_core.pipeline.providers import activate_options
from rlx_core.plugins import PluginHost, PluginPolicy, default_host, host_with
from rlx_core.plugins.host import enabled_by
from rlx_core.system.budget import CountedWork, current_work, working

Config: TypeAlias = Configuration | Mapping[str, Any] | str | os.PathLike[str] | None
"""Forms of a configuration: itself, a table, the path of a file, or nothing (the nearest file)."""


def set_up(config: Config, host: PluginHost | None) -> tuple[PluginHost, Configuration]:
    """The plugins and the configuration of a compilation.

    The configuration selects the plugins, unless the caller passes a host, and plugins define the options that a
    configuration may have: so its `[plugins]` table is read first.

    Raises:
        ConfigError: `config` has an invalid type, or a setting is invalid.
    """
    if not isinstance(config, Configuration | Mapping | str | os.PathLike | None):
        raise ConfigError(
            f"config must be a table, a path or a Configuration, not {config!r} ({type(config).__name__})"
        )
    if isinstance(config, Configuration):
        return host or host_for(config.plugins), config
    path, overrides = (None, config) if config is None or isinstance(config, Mapping) else (config, None)
    sources = read_sources(path, overrides)
    plugins = host or host_for(sources.plugins())
    options = activate_options(plugins, sources.option_names()).options
    return plugins, sources.configuration(os.environ, options)


@contextmanager
def working_on(task: str, config: Config = None, host: PluginHost | None = None) -> Iterator[CountedWork]:
    """Count the work of reading a file, under the budget of a configuration; a reader that another one calls is part of its work.

    Raises:
        ConfigError: See `set_up`.
        BudgetError: It takes too long.
    """
    outer = current_work()
    if outer is not None:
        yield outer
        return
    with working(set_up(config, host)[1].budget, task) as work:
        yield work
        work.expect_time()


def host_for(config: PluginConfig) -> PluginHost:
    """Return the host for a `[plugins]` table: the default one if the table is empty."""
    if config == PluginConfig():
        return default_host()
    policy = config.policy("the configuration")
    host = host_with(PluginPolicy.from_environment() + policy)
    expect_plugins(host, policy)
    return host


def expect_plugins(host: PluginHost, policy: PluginPolicy) -> None:
    """Require that the plugins which a configuration enables, or gives names to, are known.

    Raises:
        ConfigError: A word means no plugin, no file and no module.
    """
    names = [entry.name for entry in host.entries if entry.fault is None]
    for choice in policy.enable:
        fault = next((e.fault for e in enabled_by(choice, host.entries) if e.fault is not None), None)
        if fault is not None:
            raise ConfigError(
                f"plugins.enable: `{choice.word}` is no plugin: {fault}", hint=nearest(choice.word, names)
            )
    for name, choice in policy.override.items():
        if not any(entry.matches(choice.word) for entry in host.entries):
            raise ConfigError(
                f"plugins.override: {name} is given to `{choice.word}`, and no plugin is called that",
                hint=nearest(choice.word, names),
            )

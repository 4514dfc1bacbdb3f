"""The plugins and the configuration of a call.

Plugins that provide options, a pipeline or its passes are activated before anything is resolved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, overload

from rlx_core.contributions.records import option_variables
from rlx_core.errors import ConfigError, nearest
from rlx_core.pipeline.config.reading import read_sources
from rlx_core.pipeline.config.records import PRECISIONS, STAGES, Configuration, PluginConfig, split_entry
from rlx_core.plugins import PluginHost, PluginPolicy, default_host, host_with
from rlx_core.plugins.conditions import TARGET
from rlx_core.plugins.host import enabled_by
from rlx_core.plugins.registry import Registry
from rlx_core.system.budget import CountedWork, current_work, working
from rlx_core.system.records import evolve

CORE = "rlx"
"""The domain that a bare name is in: `dead-code` is `rlx.dead-code`."""

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


@overload
def with_precision(
    caller: str, config: Mapping[str, Any], precision: str | None, host: PluginHost | None = None
) -> Mapping[str, Any]: ...
@overload
def with_precision(caller: str, config: Config, precision: str | None, host: PluginHost | None = None) -> Config: ...
def with_precision(caller: str, config: Config, precision: str | None, host: PluginHost | None = None) -> Config:
    """Return a configuration with another `precision.policy`; itself if `precision` is `None`.

    Args:
        caller: The function that takes the precision, for the message.

    Raises:
        ConfigError: The precision is not known, or see `set_up`.
    """
    if precision is None:
        return config
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ConfigError(
            f"{caller}: precision {precision!r:.40} is none of {', '.join(PRECISIONS)}",
            hint=nearest(precision, PRECISIONS) if isinstance(precision, str) else None,
        )
    if config is None or isinstance(config, Mapping):
        table = dict(config or {})
        settings = table.get("precision", {})
        if isinstance(settings, Mapping):  # reading the configuration reports anything else
            table["precision"] = {**settings, "policy": precision}
            table.pop("precision.policy", None)
        return table
    _, configuration = set_up(config, host)
    return evolve(configuration, precision=evolve(configuration.precision, policy=precision))


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


# ------------------------------------------------------------------------------------------- providers


def activate_options(host: PluginHost, named: frozenset[str]) -> Registry:
    """The registry once everyone is active whose options a configuration may name: who offers targets, whose variables are
    set, and everyone if an option that it does name is not theirs."""
    registry = host.activate_for(TARGET, *(f"domain.{each}" for each in named_by_variables(host, os.environ)))
    return registry if named <= registry.options.keys() else host.activate_all()


def named_by_variables(host: PluginHost, environ: Iterable[str]) -> Iterator[str]:
    """Yield the plugins whose name begins a variable, because it may set one of their options."""
    variables = list(environ)
    for entry in host.entries:
        beginnings = option_variables(entry.name)
        if any(variable.startswith(beginnings) for variable in variables):
            yield entry.name


def activate_pipeline(host: PluginHost, configuration: Configuration) -> Registry:
    """The registry once everyone is active who provides the configured pipeline or something that it lists."""
    if configuration.use not in configuration.pipeline:
        activate_provider(host, ("pipelines",), full_name(configuration.use))
    registry = host.registry()
    for entry in entries_of(configuration, registry):
        name = full_name(split_entry(entry, "pipeline")[0])
        if name not in registry.passes and name not in registry.rulesets:
            activate_provider(host, ("passes", "rulesets"), name)
            registry = host.registry()
    return registry


def entries_of(configuration: Configuration, registry: Registry) -> list[Any]:
    """Return the entries of the configured pipeline, none of them checked yet; resolving it reports the errors."""
    custom = configuration.pipeline.get(configuration.use)
    if custom is not None:
        return [*custom.forward, *custom.hir, *custom.mir, *custom.lir, *configuration.included.values()]
    spec = registry.pipelines.get(full_name(configuration.use))
    if spec is None:
        return []
    lists = (spec.config.get(stage, ()) for stage in STAGES)
    return [
        *(entry for listed in lists if isinstance(listed, list | tuple) for entry in listed),
        *configuration.included.values(),
    ]


def activate_provider(host: PluginHost, kinds: Sequence[str], name: str) -> None:
    """Activate the plugin of a name's domain, and everyone if that one does not have the name."""
    for look in (host.registry, lambda: host.activate_for(f"domain.{name.partition('.')[0]}"), host.activate_all):
        registry = look()
        if any(name in registry.table(kind) or (kind, name) in registry.refused for kind in kinds):
            return


def full_name(name: str) -> str:
    return name if "." in name else f"{CORE}.{name}"

"""Providers of options, a pipeline and its passes: their plugins are activated before anything is resolved."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlx_core.contributions.records import option_variables
from rlx_core.pipeline.config.records import STAGES, Configuration, split_entry
from rlx_core.plugins import PluginHost
from rlx_core.plugins.conditions import TARGET
from rlx_core.plugins.registry import Registry

CORE = "rlx"
"""The domain that a bare name is in: `dead-code` is `rlx.dead-code`."""


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
        return [*custom.forward, *custom.hir, *custom.mir, *custom.lir, *configuration.include]
    spec = registry.pipelines.get(full_name(configuration.use))
    if spec is None:
        return []
    lists = (spec.config.get(stage, ()) for stage in STAGES)
    return [
        *(entry for listed in lists if isinstance(listed, list | tuple) for entry in listed),
        *configuration.include,
    ]


def activate_provider(host: PluginHost, kinds: Sequence[str], name: str) -> None:
    """Activate the plugin of a name's domain, and everyone if that one does not have the name."""
    for look in (host.registry, lambda: host.activate_for(f"domain.{name.partition('.')[0]}"), host.activate_all):
        registry = look()
        if any(name in registry.table(kind) or (kind, name) in registry.refused for kind in kinds):
            return


def full_name(name: str) -> str:
    return name if "." in name else f"{CORE}.{name}"

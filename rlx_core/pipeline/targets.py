"""Which backend compiles: the one that was asked for, or the preferred one, with the kernels that other plugins bring for it."""

from __future__ import annotations

from attrs import evolve

from rlx_core.errors import DeviceError
from rlx_core.pipeline.backend import Backend, Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginHost, Registry
from rlx_core.plugins.conditions import TARGET

__all__ = ["find_target", "with_contributed_kernels"]


def find_target(host: PluginHost, wanted: str | None) -> tuple[str, Backend, Registry]:
    """The backend of a target, and the registry with everybody who extends it.

    Raises:
        DeviceError, DeviceUnavailableError: Nothing provides the target, or its plugin cannot be used here.
    """
    if wanted is None:
        registry = host.activate_for(TARGET)
        wanted = preferred_target(registry if registry.backends else host.activate_all())
    backend = host.load("backends", wanted)
    registry = host.activate_for_compile(wanted)
    return wanted, backend() if isinstance(backend, type) else backend, registry


def preferred_target(registry: Registry) -> str:
    """The available target of the highest priority; among equals the first by name.

    Plugins that wait for the condition `target` offer theirs as a default. The others are considered only if nobody does:
    which of them are active depends on what else the process did, and the choice must not.

    Raises:
        DeviceError: No backend is installed.
    """
    if not registry.backends:
        raise DeviceError("target: no backend is installed", hint="pip install rlx-cpu; `rlx doctor` says more")
    offered = [s for s in registry.backends.values() if TARGET in registry.claims["backends", s.name].entry.when]
    return min(offered or registry.backends.values(), key=lambda spec: (-spec.priority, spec.name)).name


def with_contributed_kernels(target: Target, registry: Registry, name: str) -> Target:
    """The target with the kernels that other plugins bring for it, in a table of its own."""
    specs = registry.kernels_for(name)
    if not specs:
        return target

    def fill(table: KernelTable) -> None:
        table.merge(target.kernels)
        for spec in specs:
            table.merge(registry.load("kernels", spec.name), plugin=registry.owner("kernels", spec.name).plugin)

    return evolve(target, kernels=KernelTable(name, fill=fill))

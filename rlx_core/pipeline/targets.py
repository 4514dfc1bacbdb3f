"""Choice of the backend: the requested one, or the preferred one, with the kernels that other plugins bring for it."""

from __future__ import annotations

from functools import partial

from attrs import evolve

from rlx_core import hints, pipeline
from rlx_core.errors import ConfigError, DeviceError, Fact, PluginError, RlxError
from rlx_core.pipeline.backend import ABSENT, Backend, Target
from rlx_core.pipeline.contributed import expectation
from rlx_core.pipeline.kernels import Kernel, KernelTable
from rlx_core.plugins import PluginHost, Registry, State
from rlx_core.plugins.conditions import TARGET
from rlx_core.plugins.faults import fault_of, named_cause
from rlx_core.plugins.states import attempt


def find_target(host: PluginHost, requested: str | None) -> tuple[str, Backend, Registry]:
    """The backend of a target, and the registry with everybody who extends it.

    Raises:
        DeviceError, DeviceUnavailableError: Nothing provides the target, or its plugin cannot be used here.
        PluginError: It does not load, or is no backend.
    """
    if requested is None:
        name, backend = preferred_target(host)
    else:
        name, backend = wanted_target(host, requested)
    return name, backend, host.activate_for_compile(name)


def wanted_target(host: PluginHost, requested: str) -> tuple[str, Backend]:
    """The name and the backend of a target as users write it: `gpu`, `gpu:1`, or `gpu:absent` for its code alone.

    Raises:
        DeviceError: It prints no code without a device. And see `find_target`.
    """
    if isinstance(requested, str) and requested.endswith(f":{ABSENT}"):
        name = requested.removesuffix(f":{ABSENT}")
        absent_backend = opened(host, name, even_unavailable=True).absent()
        if absent_backend is None:
            raise DeviceError(f"target: {name} has nothing that is printed without a device", hint=f'write "{name}"')
        return name, absent_backend
    name, number = numbered(requested)
    backend = opened(host, name)
    return name, backend if number is None else backend.on(number)


def numbered(requested: str) -> tuple[str, int | None]:
    """A target as users write it, `gpu` or `gpu:1`, as its name and the number of the device.

    Raises:
        DeviceError: It is no text, or the text after the colon is not a number.
    """
    if not isinstance(requested, str):
        raise DeviceError(f"target: one is asked for by its name, not by {requested!r} ({type(requested).__name__})")
    name, colon, number = requested.partition(":")
    if colon and not (number.isascii() and number.isdecimal()):
        raise DeviceError(f"target: {requested!r} has no number after the colon", hint=f'write "{name}:0"')
    return name, int(number) if colon else None


def opened(host: PluginHost, name: str, *, even_unavailable: bool = False) -> Backend:
    """Return the backend of a target, loaded and instantiated.

    Args:
        even_unavailable: Whether it is returned even if it cannot be used here.

    Raises:
        PluginError: It does not load, is no backend, or raises when it is made. And see `find_target`.
    """
    spec = host.require("backends", name, even_unavailable=even_unavailable)
    registry = host.registry()
    expected = expectation("backends", spec, registry)
    loaded = registry.load("backends", name, expected, even_unavailable=even_unavailable)
    if isinstance(loaded, Backend):
        return loaded
    outcome = attempt(loaded)
    if outcome.failure is not None:
        cause = outcome.failure.error
        raise PluginError(
            f"{name}: making its backend raised {named_cause(cause)}",
            Fact("plugin", registry.owner("backends", name), outcome.failure.where or None),
        ) from cause
    assert isinstance(outcome.value, Backend), "what was expected is a class of backends, and it was made"
    return outcome.value


def preferred_target(host: PluginHost) -> tuple[str, Backend]:
    """The available target of the highest priority, and its backend; among equals the first by name.

    Plugins with the condition `target` offer theirs as a default. The others are considered only if there is no such default:
    the set of active ones depends on the history of the process, and the choice must not. One that cannot be used is left
    out with a warning.

    Where none is installed it is the reference interpreter, with a warning.

    Raises:
        DeviceError: Backends are installed, and none can be used here.
        PluginError: Backends are available, and none works; the error is the first one's.
    """
    first: RlxError | None = None
    for name in offered(host):
        try:
            return name, opened(host, name)
        except RlxError as error:
            registry = host.registry()
            registry.leave_out(fault_of(registry.claims["backends", name], error))
            first = first or error
    reasons = unusable_backends(host)
    if first is not None or reasons:
        raise first or no_backend(host)
    pipeline.interpreted.warn_of_interpreter(install_command())
    return pipeline.interpreted.INTERPRETER, pipeline.interpreted.Interpreter()


def offered(host: PluginHost) -> list[str]:
    """Return the targets that may be chosen by default, best first."""
    registry = host.activate_for(TARGET)
    if not registry.backends:
        registry = host.activate_all()
    specs = registry.backends.values()
    default = [s for s in specs if TARGET in registry.claims["backends", s.name].entry.when]
    return [spec.name for spec in sorted(default or specs, key=lambda spec: (-spec.priority, spec.name))]


def no_backend(host: PluginHost) -> DeviceError:
    """Return the error if no backend can be used: unmet requirements of installed ones, what disabled them, or the remedy."""
    reasons = unusable_backends(host)
    if reasons:
        hints = [hint for _, hint in reasons if hint]
        return DeviceError(
            "target: no backend can be used", *(fact for fact, _ in reasons), hint=hints[0] if hints else None
        )
    return DeviceError("target: no backend is installed", hint=f"{install_command()}; `rlx doctor` says more")


def unusable_backends(host: PluginHost) -> list[tuple[Fact, str | None]]:
    """The backends that are installed and cannot be used, each with the reason and the remedy."""
    unusable = (State.BLOCKED, State.INCOMPATIBLE, State.FAILED)
    known = hints.packages.known_packages()
    registry = host.registry()
    result: list[tuple[Fact, str | None]] = [
        (Fact(verdict.state.value, f"{entry.name}: {verdict.reason}", entry.distribution), verdict.mend)
        for entry, verdict in registry.absent
        if verdict.state in unusable and f"target.{entry.name}" in known
    ]
    for (kind, name), refusal in registry.refused.items():
        missing = [str(fact.value) for fact in refusal.facts if fact.label == "missing"]
        if kind == "backends" and missing:
            result.append((Fact("missing", f"{name}: {missing[0]}"), refusal.hint))
    return result


def install_command() -> str | None:
    """The command that installs the backend for this machine's processor."""
    return next((package.command for package in hints.packages.known_packages().values() if package.command), None)


def with_contributed_kernels(target: Target, registry: Registry, name: str) -> Target:
    """Return the target with the kernels that other plugins bring for it, in a separate table.

    A table that does not load, or has a row that cannot be a kernel, is left out as a whole.
    """
    specs = registry.kernels_for(name)
    if not specs:
        return target
    return evolve(target, kernels=KernelTable(name, fill=partial(fill, target, registry)))


def fill(target: Target, registry: Registry, table: KernelTable) -> None:
    """Fill a table with a target's own rows and those of others."""
    table.merge(target.kernels)
    for spec in registry.kernels_for(target.name):
        rows = registry.usable("kernels", spec.name, expectation("kernels", spec, registry))
        claim = registry.claims["kernels", spec.name]
        if rows is not None:
            try:
                plugin_kernels = (as_guest(row, target, claim.entry.name) for row in rows)
                table.merge(row for row in plugin_kernels if row is not None)
                continue
            except ConfigError as error:
                registry.leave_out(fault_of(claim, error))
        table.leave_out(registry.left_out["kernels", spec.name])


def as_guest(row: Kernel, target: Target, plugin: str) -> Kernel | None:
    """Return a row of another plugin: its `plugin` is that plugin, whatever table it came from, and the target converts it.

    A target without `adopt` knows nothing of a plugin's row, which is then called as a function, on the last tier.
    """
    its = evolve(row, plugin=plugin)
    if target.adopt is not None:
        return target.adopt(its)
    is_best = len(target.tiers) > 1 and row.tier == target.tiers[0]
    return evolve(its, tier=None) if is_best else its

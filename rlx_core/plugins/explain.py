"""Errors for missing names, with the plugin's own cause and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rlx_core.errors import (
    DeviceError,
    DeviceUnavailableError,
    Fact,
    PluginError,
    RlxError,
    UnknownNameError,
    nearest,
)
from rlx_core.hints.packages import KnownPackage, known_packages, reinstalling
from rlx_core.plugins.conditions import conditions_of
from rlx_core.plugins.entry import PluginEntry, PluginOrigin
from rlx_core.plugins.states import Failure, State, Verdict, singular

Absent = tuple[PluginEntry, Verdict]
PHRASE: Final = {State.FAILED: "failed", State.BLOCKED: "is blocked", State.INCOMPATIBLE: "is incompatible"}


def missing(kind: str, name: str, known: Sequence[str], absent: Iterable[Absent]) -> RlxError:
    """Return the error for a name that no plugin provides; `known` are the provided names of its kind."""
    relevant = {each for each in conditions_of(kind, name) if "." in each}  # `target` alone is not specific
    candidates = [(entry, verdict) for entry, verdict in absent if relevant & entry.conditions]
    if candidates:
        return unusable(kind, name, candidates)
    for condition in sorted(relevant):
        if (package := known_packages().get(condition)) is not None:
            return not_installed(kind, name, package)
    return unknown(kind, name, known, absent)


def unusable(kind: str, name: str, candidates: list[Absent]) -> RlxError:
    """Return the error if the plugins that would provide it cannot be used; the first one's cause is the error's cause."""
    entry, verdict = candidates[0]
    error = PluginError(f"{name}: its plugin {entry.name} {PHRASE[verdict.state]}", hint=verdict.mend)
    for each, its in candidates:
        error.with_fact(Fact("plugin", f"{each.distribution} {each.version}", each.file or None))
        error.with_fact(Fact("reason", its.reason, its.failure.where if its.failure else None))
    if verdict.failure is not None:
        error.__cause__ = verdict.failure.error
    return error


def not_installed(kind: str, name: str, package: KnownPackage) -> RlxError:
    """Return the error for a name that no installed plugin provides, but a known package does."""
    error = DeviceUnavailableError if kind == "backends" else PluginError
    return error(
        f"{name}: no installed plugin provides this {singular(kind)}",
        Fact("package", package.name),
        hint=package.command,
    )


def unknown(kind: str, name: str, known: Sequence[str], absent: Iterable[Absent]) -> RlxError:
    """Return the error for an unknown name. Plugins that failed are listed, because one of them may provide it."""
    error = DeviceError if kind == "backends" else UnknownNameError
    facts = [
        Fact(verdict.state.value, f"{entry.name}: {verdict.reason}", entry.distribution)
        for entry, verdict in absent
        if verdict.state is State.FAILED
    ]
    if kind == "backends":
        facts.insert(0, Fact("targets", ", ".join(known) or "none; no backend is installed"))
    hint = nearest_target(name, known) if kind == "backends" else nearest(name, known)
    return error(f"{name}: no plugin provides this {singular(kind)}", *facts, hint=hint)


def unknown_suffix(verb: str, suffix: str, known: Iterable[str]) -> UnknownNameError:
    """No plugin imports or exports (`verb`) files with a suffix; a package that is known to is the hint."""
    package = known_packages().get(f"{verb}{suffix}")
    suffixes = sorted(known)
    return UnknownNameError(
        f"{suffix or 'no suffix'}: no plugin can {verb} such files",
        Fact("suffixes", ", ".join(suffixes) or "none"),
        *([Fact("package", package.name)] if package else []),
        hint=package.command if package else nearest(suffix, suffixes),
    )


def mending(entry: PluginEntry, failure: Failure) -> str:
    """Return the suggested fix for a plugin that failed."""
    switch_off = f"switch it off: RLX_PLUGINS_BLOCK={entry.name}"
    if entry.fault is not None:
        return "install it, or name the file or the module that it is in"
    if entry.origin is PluginOrigin.BUILTIN:
        return reinstalling(entry.distribution, entry.file, "--force-reinstall")
    if entry.origin is not PluginOrigin.INSTALLED:
        return f"correct {failure.where}, or {switch_off}" if failure.where else switch_off
    # Reinstalling the distribution installs its dependencies. A missing module's own name would only be a guess at a package,
    # and anyone can publish a package under a name that people guess.
    return f"{reinstalling(entry.distribution, entry.file, '--upgrade')}, or {switch_off}"


def nearest_target(name: str, known: Sequence[str]) -> str | None:
    """The hint for a misspelt target; one that is known and not installed comes with its package."""
    packages = {each.removeprefix("target."): by for each, by in known_packages().items() if each.startswith("target.")}
    hint = nearest(name, [*known, *(each for each in packages if each not in known)])
    absent = next((p for each, p in packages.items() if each not in known and hint == nearest(each, [each])), None)
    if absent is None:
        return hint
    return f"{hint} It is not installed: {absent.command}"

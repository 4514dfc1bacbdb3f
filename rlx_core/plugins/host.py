"""`PluginHost`, the one mutable part: knows every plugin, activates plugins on demand, extends registries."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

from rlx_core.contributions import ExporterSpec, ImporterSpec
from rlx_core.contributions.validators import BARE_NAME
from rlx_core.errors import Fact, PluginError, nearest
from rlx_core.errors.lacks import is_lack
from rlx_core.plugins.collect import Claim, Collected, collect
from rlx_core.plugins.conditions import COMPILE, VERBS, WORDS, conditions_of, is_condition, target_conditions
from rlx_core.plugins.digest import packages_of, sha256, stamp_of
from rlx_core.plugins.entry import (
    PluginEntry,
    PluginOrigin,
    builtin_entry,
    given_entry,
    named_entry,
    normalized,
    owners,
    unmet_requirements,
)
from rlx_core.plugins.faults import ContributionFault
from rlx_core.plugins.freeze import freeze
from rlx_core.plugins.index import installed_plugins
from rlx_core.plugins.manager import PluginManager
from rlx_core.plugins.policy import Choice, PluginPolicy
from rlx_core.plugins.registry import Key, Registry
from rlx_core.plugins.states import PluginStatus, State, Verdict, attempt
from rlx_core.system.locks import Lock

EntryKey = tuple[str, str, str]
_numbers: Final = count()

HOSTS: Final[WeakValueDictionary[int, PluginHost]] = WeakValueDictionary()
"""The hosts of this process by number: owners are looked up in them when a call has failed, the latest host first."""


class PluginHost:
    """The plugins of one program: all of them known, those that are needed active.

    A plugin is activated when a name of its domain or its target is resolved, when a condition that its
    distribution declares becomes true, when the policy enables it, or, at last, when a name is resolved
    that no active plugin provides. A failure of one plugin does not affect the others; see `survey`.

    Args:
        entries: Instead of the installed plugins: entries, or plugins themselves (modules, objects), which are active at once.
        policy: The plugins that are blocked, allowed, enabled and overridden; default: from the environment variables.
        builtin: Whether rlx-core's own ops and passes take part.
    """

    def __init__(
        self,
        entries: Iterable[object] | None = None,
        *,
        policy: PluginPolicy | None = None,
        builtin: bool = True,
    ) -> None:
        self.policy: Final = PluginPolicy.from_environment() if policy is None else policy
        self.notes: tuple[str, ...] = ()
        self.index_faults: tuple[str, ...] = ()
        explicit: set[EntryKey] = set()
        if entries is None:
            index = installed_plugins()
            known = list(index.entries)
            self.index_faults = index.faults
        else:
            listed = list(entries)
            known = [each if isinstance(each, PluginEntry) else given_entry(each) for each in listed]
            refuse_namesakes(known)
            explicit = {entry.key for each, entry in zip(listed, known, strict=True) if entry is not each}
        known = [each for each in known if builtin or each.origin is not PluginOrigin.BUILTIN]
        if builtin and not any(each.origin is PluginOrigin.BUILTIN for each in known):
            known.append(builtin_entry())
        enabled = {entry.key: entry for choice in self.policy.enable for entry in enabled_by(choice, known)}
        everyone = {entry.key: entry for entry in [*known, *enabled.values()]}
        self.entries: Final = tuple(everyone[key] for key in sorted(everyone))
        self.notes += self.policy.unmatched(self.entries)
        self.notes += tuple(note for entry in self.entries for note in misspelt_conditions(entry))
        # rlx's own first: its names are then known when a plugin claims one of them.
        builtin_entries = [entry for entry in self.entries if entry.origin is PluginOrigin.BUILTIN]
        selected = explicit | enabled.keys()
        self._at_once = builtin_entries + [
            entry for entry in self.entries if entry.key in selected and entry not in builtin_entries
        ]
        self._manager = PluginManager(frozenset(entry.module.partition(":")[0] for entry in self.entries))
        self._verdicts: dict[EntryKey, Verdict] = {}
        self._collected: dict[EntryKey, Collected] = {}
        self._domains = owners(self.entries)
        self._left_out: dict[Key, ContributionFault] = {}
        self._met: set[str] = set()
        self._registry: Registry | None = None
        HOSTS[next(_numbers)] = self
        self._lock = Lock("the plugins")  # re-entrant: a plugin's module may itself use rlx while it is imported

    def registry(self) -> Registry:
        """The registry of everything that is active now."""
        with self._lock:
            self._activate(self._at_once)
            if self._registry is None:
                self._registry = self._freeze()
            return self._registry

    def require(self, kind: str, name: str, *, even_unavailable: bool = False) -> Any:
        """Return the record of a name, activating its possible owners; arguments and errors as those of `Registry.require`."""
        self._look_for(kind, name)
        return self.registry().require(kind, name, even_unavailable=even_unavailable)

    def load(self, kind: str, name: str) -> Any:
        """Return the object itself, imported; see `Registry.load`."""
        self._look_for(kind, name)
        return self.registry().load(kind, name)

    def importers_for(self, suffix: str) -> list[ImporterSpec]:
        """The readers for files with a suffix, the one to use first: rlx's own, then the others in order.

        The configuration assigns a suffix to another plugin as it does names: `[plugins.override] ".acme" = "acme"`.

        Raises:
            UnknownNameError: No importer reads this suffix.
        """
        return self._for_suffix("importers", suffix)

    def exporters_for(self, suffix: str) -> list[ExporterSpec]:
        """The writers for files with a suffix, in the same order."""
        return self._for_suffix("exporters", suffix)

    def activate_for_compile(self, target: str) -> Registry:
        """Return the registry for a compilation, with all plugins that extend the target or compilation in general."""
        return self.activate_for(COMPILE, *target_conditions(target))

    def activate_for(self, *conditions: str) -> Registry:
        """Activate the plugins that wait for one of these conditions; returns the registry."""
        with self._lock:
            fresh = set(conditions) - self._met
            if fresh:
                self._activate(self._at_once)
                self._activate(entry for entry in self.entries if fresh & entry.conditions)
                if not any(map(lacked_memory, self._verdicts.values())):
                    self._met |= fresh
            return self.registry()

    def activate_all(self) -> Registry:
        """Activate every plugin that may be used; returns the registry."""
        with self._lock:
            self._activate(self._at_once)
            self._activate(self.entries)
            return self.registry()

    def claim_of(self, kind: str, name: str) -> Claim | None:
        """Return the claim of a contribution, among the plugins that are active already; for errors about it."""
        registry = self._registry
        return None if registry is None else registry.claims.get((kind, name))

    def stamp(self, packages: Iterable[str] = ()) -> str | None:
        """Return the part of a cache key that identifies the active plugins and the state of their code.

        `None` where that cannot be known without running them: for a plugin that is an object or a lone file.

        Args:
            packages: Further top-level packages whose code counts.
        """
        with self._lock:
            registry = self.registry()
            active = [entry for entry in self.entries if entry.key in self._collected]
        code = stamp_of((*packages_of(active), *packages))
        return None if code is None else sha256([registry.hash, code])

    def survey(self, load: bool = True) -> list[PluginStatus]:
        """Return the status of every known plugin. Works however many of them are broken.

        Args:
            load: Activate them all first, so that each has a verdict; otherwise no plugin's code runs.
        """
        from rlx_core.plugins.survey import status  # here, because few programs list plugins

        with self._lock:
            if load:
                self.activate_all()
            # Not `registry()`: a listing without loading must not load enabled plugins either.
            registry = self._freeze() if self._registry is None else self._registry
            return [
                status(
                    entry,
                    self._verdicts.get(entry.key) or self.policy.verdict(entry),
                    self._collected.get(entry.key),
                    registry,
                )
                for entry in self.entries
            ]

    def _look_for(self, kind: str, name: str) -> None:
        """Activate the plugins that should provide a name, and all plugins if they do not."""
        conditions = conditions_of(kind, name)
        overriding = self.policy.override.get(name)
        if not self._met.issuperset(conditions):
            self.activate_for(*conditions)
        if overriding is not None:
            with self._lock:
                self._activate(entry for entry in self.entries if entry.matches(overriding.word))
        registry = self.registry()
        if name not in registry.table(kind) and (kind, name) not in registry.refused:
            self.activate_all()

    def _for_suffix(self, kind: str, suffix: str) -> list[Any]:
        verb = VERBS[kind]
        registry = self.activate_for(verb, f"{verb}{suffix}")
        if (chosen := self.policy.override.get(suffix.lower())) is not None:
            with self._lock:
                self._activate(entry for entry in self.entries if entry.matches(chosen.word))
            registry = self.registry()
        for attempted in (registry, None):
            registry = attempted or self.activate_all()
            table: Any = registry.table(kind)
            matches = [record for record in table.values() if suffix.lower() in record.suffixes]
            if matches:
                return sorted(matches, key=lambda record: self._turn(registry.claims[kind, record.name], suffix))
        from rlx_core.plugins.explain import unknown_suffix  # here, because it is for an error

        raise unknown_suffix(verb, suffix, {each for record in table.values() for each in record.suffixes})

    def _turn(self, claim: Claim, suffix: str) -> tuple[bool, bool]:
        choice = self.policy.override.get(suffix.lower())
        return choice is None or not claim.entry.matches(choice.word), claim.entry.origin is not PluginOrigin.BUILTIN

    def _activate(self, entries: Iterable[PluginEntry]) -> None:
        """Activate those of these that have no verdict yet, in the fixed order of the entries."""
        for entry in entries:
            if entry.key in self._verdicts and not lacked_memory(self._verdicts[entry.key]):
                continue
            verdict = self.policy.verdict(entry)
            # Recorded before its code runs, so that a plugin that resolves names while it is imported
            # does not start its own activation again.
            self._verdicts[entry.key] = verdict or Verdict(State.ACTIVE)
            if verdict is None:
                try:
                    self._verdicts[entry.key] = self._try(entry)
                except KeyboardInterrupt:
                    del self._verdicts[entry.key]  # no verdict was reached; the next use tries again
                    raise
            self._registry = None

    def _try(self, entry: PluginEntry) -> Verdict:
        """Run one plugin's code; the only result is its verdict."""
        outcome = attempt(lambda: self._collect(entry))
        if outcome.failure is not None:
            from rlx_core.plugins.explain import mending  # here, because it is for an error

            failure = outcome.failure
            return Verdict(State.FAILED, failure.summary, mending(entry, failure), failure)
        assert outcome.value is not None  # no failure means a value
        self._collected[entry.key] = outcome.value
        if outcome.value.unavailable is not None:
            return Verdict(State.UNAVAILABLE, outcome.value.unavailable)
        return Verdict(State.ACTIVE, newer_note(outcome.value.skipped, self._unmet(entry)))

    def _unmet(self, entry: PluginEntry) -> str:
        """Return the requirements of a plugin on the distributions of other plugins that are not met here."""
        versions = {normalized(each.distribution): each.version for each in self.entries}
        return "; ".join(unmet_requirements(entry.others, versions))

    def _collect(self, entry: PluginEntry) -> Collected:
        if not BARE_NAME.fullmatch(entry.name):
            raise PluginError(f"the plugin's name is {entry.name!r}, not one lower-case word")
        return collect(entry, self._manager, self._reserved_from(entry))

    def _reserved_from(self, entry: PluginEntry) -> dict[tuple[str, str], Claim]:
        """Return rlx's own names, except those that the configuration assigns to this plugin."""
        if entry.origin is PluginOrigin.BUILTIN:
            return {}
        overridden = {name for name, choice in self.policy.override.items() if entry.matches(choice.word)}
        builtin_claims = (claim for claim in self._claims() if claim.entry.origin is PluginOrigin.BUILTIN)
        return {(claim.kind, claim.name): claim for claim in builtin_claims if claim.name not in overridden}

    def _claims(self) -> list[Claim]:
        return [claim for collected in self._collected.values() for claim in collected.claims]

    def _freeze(self) -> Registry:
        unusable = (State.BLOCKED, State.INCOMPATIBLE, State.FAILED)
        verdicts = [(entry, self._verdicts.get(entry.key)) for entry in self.entries]
        absent = [(entry, verdict) for entry, verdict in verdicts if verdict and verdict.state in unusable]
        reasons = {key: each.unavailable for key, each in self._collected.items() if each.unavailable}
        return freeze(self._claims(), self.policy, reasons, absent, self._domains, self._left_out)


def newer_note(skipped: Iterable[str], unmet: str) -> str:
    """The remark about an active plugin that was made for a newer rlx-core, or for other versions of other plugins."""
    skipped = list(skipped)
    newer = f"made for a newer rlx-core: {', '.join(skipped)} is skipped" if skipped else ""
    return "; ".join(filter(None, (newer, unmet)))


def lacked_memory(verdict: Verdict) -> bool:
    """Return whether a plugin failed for want of memory, so that its next attempt may succeed."""
    return verdict.failure is not None and is_lack(verdict.failure.error)


def misspelt_conditions(entry: PluginEntry) -> Iterator[str]:
    """Remarks on the conditions of a plugin that never become true."""
    for each in entry.when:
        if not is_condition(each):
            hint = nearest(each.partition(".")[0], WORDS)
            message = (
                f"{entry.name} ({entry.distribution} {entry.version}): rlx.when has `{each}`, which is no condition"
            )
            yield f"{message}; {hint}" if hint else message


def refuse_namesakes(entries: Iterable[PluginEntry]) -> None:
    """Refuse two plugins that were passed in under one name; one would silently be missing."""
    seen: dict[EntryKey, PluginEntry] = {}
    for entry in entries:
        if seen.setdefault(entry.key, entry).plugin is not entry.plugin:
            raise PluginError(
                f"two of the plugins passed in are called {entry.name}",
                Fact("first", seen[entry.key].plugin),
                Fact("second", entry.plugin),
                hint="give each its name: PluginEntry(name, plugin=…)",
            )


def enabled_by(choice: Choice, known: Iterable[PluginEntry]) -> list[PluginEntry]:
    """The entries that a word in `enable` means: known ones by name, or a new one for a file or a module."""
    module = choice.word.rpartition("=")[2]
    installed = [entry for entry in known if entry.matches(choice.word) or entry.module == module]
    if installed:
        return installed
    if any(letter in choice.word for letter in "=:./"):
        return [named_entry(choice.word)]
    hint = nearest(choice.word, (entry.name for entry in known))
    fault = f"{choice.source} enables it, and no plugin of this name is installed"
    return [PluginEntry(choice.word, origin=PluginOrigin.NAMED, fault=f"{fault}; {hint}" if hint else fault)]


_default_lock = Lock("the list of plugin hosts")
_hosts: list[PluginHost] = []  # none or one; built on first use, so that importing rlx reads no metadata
_restricted: dict[str, PluginHost] = {}


def default_host() -> PluginHost:
    """The host of everything that is installed, as the environment restricts it; built on first use."""
    with _default_lock:
        if _hosts:
            return _hosts[0]
        host = announced(PluginHost())
        if not _hosts:  # a signal handler may have built one meanwhile
            _hosts.append(host)
        return _hosts[0]


def host_with(policy: PluginPolicy) -> PluginHost:
    """The host of everything that is installed, as `policy` restricts it; equal policies share one."""
    key = repr(policy)
    with _default_lock:
        return _restricted.get(key) or _restricted.setdefault(key, announced(PluginHost(policy=policy)))


def announced(host: PluginHost) -> PluginHost:
    """Return the host after a warning for each word of its policy that matches no plugin: a misspelt plugin is not blocked."""
    for note in host.notes:
        warnings.warn(f"plugins: {note}", RuntimeWarning, stacklevel=3)
    return host


def set_default_host(host: PluginHost | None) -> PluginHost | None:
    """Use another host by default from now on (`None`: build a new one); returns the one before."""
    with _default_lock:
        before = _hosts[0] if _hosts else None
        _hosts[:] = [] if host is None else [host]
        return before

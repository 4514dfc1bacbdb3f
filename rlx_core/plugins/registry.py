"""`Registry`: everything the active plugins provide, as one immutable value of plain tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from attrs import field

from rlx_core.contributions import (
    KINDS,
    BackendSpec,
    BlockSpec,
    CommandSpec,
    Contribution,
    EventSpec,
    ExporterSpec,
    FunctionSpec,
    ImporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSetSpec,
    RuleSpec,
    SchemeSpec,
)
from rlx_core.errors import DeviceUnavailableError, Fact, PluginError, RlxError, UnknownNameError, nearest
from rlx_core.plugins.collect import Claim
from rlx_core.plugins.digest import sha256
from rlx_core.plugins.entry import PluginEntry
from rlx_core.plugins.faults import ContributionFault, fault_of, warn_of
from rlx_core.plugins.states import Provenance, Verdict, attempt
from rlx_core.system.records import frozen

R = TypeVar("R", bound=Contribution)
Key = tuple[str, str]  # kind, name
Expect = Callable[[Any], str | None]
"""Validator of a loaded contribution: returns a description of the fault, or `None`."""
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@frozen
class Refusal:
    """A name that is claimed but cannot be used, and the error that its use raises."""

    claims: tuple[Claim, ...]
    kind: type[RlxError]
    message: str
    facts: tuple[Fact, ...] = ()
    hint: str | None = None

    def error(self) -> RlxError:
        """The error, a new object each time so that tracebacks do not pile up on one object."""
        return self.kind(self.message, *self.facts, hint=self.hint)


@frozen
class Override:
    """A name that the configuration assigns to another plugin than the one that would have it."""

    winner: Claim
    loser: Claim
    source: str


@frozen(kw_only=True, repr=False)
class Registry:
    """All contributions: one table per kind, each in the order that `before`, `after`, `priority` and names give.

    A registry never changes; activating a plugin makes another one. Look-ups are dictionary look-ups.
    """

    ops: Mapping[str, OpSpec] = EMPTY
    rules: Mapping[str, RuleSpec] = EMPTY
    passes: Mapping[str, PassSpec] = EMPTY
    rulesets: Mapping[str, RuleSetSpec] = EMPTY
    legalizations: Mapping[str, LegalizationSpec] = EMPTY
    backends: Mapping[str, BackendSpec] = EMPTY
    kernels: Mapping[str, KernelSpec] = EMPTY
    blocks: Mapping[str, BlockSpec] = EMPTY
    schemes: Mapping[str, SchemeSpec] = EMPTY
    importers: Mapping[str, ImporterSpec] = EMPTY
    exporters: Mapping[str, ExporterSpec] = EMPTY
    pipelines: Mapping[str, PipelineSpec] = EMPTY
    options: Mapping[str, OptionSpec] = EMPTY
    commands: Mapping[str, CommandSpec] = EMPTY
    functions: Mapping[str, FunctionSpec] = EMPTY
    events: Mapping[str, EventSpec] = EMPTY
    claims: Mapping[Key, Claim] = EMPTY  # the winners, one per name
    refused: Mapping[Key, Refusal] = EMPTY
    overrides: tuple[Override, ...] = ()
    absent: tuple[tuple[PluginEntry, Verdict], ...] = ()  # plugins that provide nothing, and why
    faults: tuple[ContributionFault, ...] = ()  # claims whose faults were detected without importing anything
    left_out: dict[Key, ContributionFault] = field(factory=dict, eq=False)  # faults that `usable` detected; grows
    _memo: dict[str, str] = field(factory=dict, init=False, eq=False)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.table(kind))} {kind}" for kind in KINDS if self.table(kind))
        return f"<Registry {self.hash[:12]}: {counts or 'empty'}>"

    def table(self, kind: str) -> Mapping[str, Contribution]:
        """The table of one kind, by the kind's name."""
        if kind not in KINDS:
            raise UnknownNameError(f"registry: `{kind}` is not a kind", hint=nearest(kind, KINDS))
        result: Mapping[str, Contribution] = getattr(self, kind)
        return result

    @property
    def hash(self) -> str:
        """The digest of all that is registered: equal on two machines with the same packages active."""
        if "hash" not in self._memo:
            rows = sorted([kind, name, claim.digest] for (kind, name), claim in self.claims.items())
            self._memo["hash"] = sha256(rows)
        return self._memo["hash"]

    def digest(self, kind: str, name: str) -> str:
        """Return the digest of one record; a lock file refers to it where other plugins should not matter."""
        return self._claim(kind, name).digest

    def owner(self, kind: str, name: str) -> Provenance:
        """Which plugin, distribution, version and file something comes from."""
        return self._claim(kind, name).provenance

    def require(self, kind: str, name: str, *, even_unavailable: bool = False) -> Any:
        """The record of a name.

        Args:
            even_unavailable: Whether a target will do that cannot be used here.

        Raises:
            PluginError: its plugin failed, is blocked or incompatible, or two plugins claim the name.
            DeviceUnavailableError: it is a target whose plugin, driver or library is missing here.
            UnknownNameError: nothing provides it (for a target: DeviceError).
        """
        record = self.table(kind).get(name)
        if record is not None:
            return record
        refusal = self.refused.get((kind, name))
        if refusal is not None and even_unavailable and refusal.kind is DeviceUnavailableError:
            return refusal.claims[0].record
        if refusal is not None:
            raise refusal.error()
        claimed = [each for its, each in self.refused if its == kind]
        from rlx_core.plugins.explain import missing  # here, because it is for an error

        raise missing(kind, name, [*self.table(kind), *claimed], self.absent)

    def load(self, kind: str, name: str, expect: Expect | None = None, *, even_unavailable: bool = False) -> Any:
        """The thing itself: the record's `load`, imported.

        Args:
            expect: Returns the fault of the loaded object, or `None`.
            even_unavailable: See `require`.

        Raises:
            PluginError: It does not load, or is of the wrong type; the error has its cause, the plugin that contributed it,
                and a fix. And see `require`.
        """
        record = self.require(kind, name, even_unavailable=even_unavailable)
        claim = self._claim(kind, name)
        try:
            loaded = record.load.resolve()
            complaint = attempt(lambda: expect(loaded)) if expect is not None else None
            if complaint is not None and complaint.failure is not None:
                raise PluginError(f"{name}: {complaint.failure.summary}") from complaint.failure.error
            if complaint is not None and complaint.value is not None:
                raise PluginError(f"{name}: {complaint.value}")
        except PluginError as error:
            error.hint = error.hint or fault_of(claim, error).mend
            raise error.with_fact(Fact("plugin", claim.provenance)) from error.__cause__
        return loaded

    def usable(self, kind: str, name: str, expect: Expect | None = None) -> Any:
        """Return the object itself, or `None` if it cannot be used: then it is left out, with one warning.

        For contributions that take part without being requested by name: they must not stop a program that does not need them.
        """
        if (kind, name) in self.left_out:
            return None
        try:
            return self.load(kind, name, expect)
        except RlxError as error:
            self.leave_out(fault_of(self.claims[kind, name], error))
            return None

    def leave_out(self, fault: ContributionFault) -> None:
        """Stop using a contribution, and warn of it once."""
        if self.left_out.setdefault((fault.kind, fault.name), fault) is fault:
            warn_of(fault)

    def kernels_for(self, target: str) -> list[KernelSpec]:
        """Return every kernel table for a target, from all plugins, in order."""
        return [record for record in self.kernels.values() if record.target == target]

    def legalizations_for(self, target: str) -> list[LegalizationSpec]:
        """Every legalization table for a target, in order."""
        return [record for record in self.legalizations.values() if record.target == target]

    def rules_for(self, op: str) -> dict[str, RuleSpec]:
        """The rules that plugins add to an op, by the kind of rule."""
        return {record.kind: record for record in self.rules.values() if record.op == op}

    def listeners(self, event: str) -> list[EventSpec]:
        """The listeners to a compile event, in the order in which they are called."""
        return [record for record in self.events.values() if record.event == event]

    def _claim(self, kind: str, name: str) -> Claim:
        self.require(kind, name, even_unavailable=True)  # an unavailable target has a claim, too
        return self.claims.get((kind, name)) or self.refused[kind, name].claims[0]

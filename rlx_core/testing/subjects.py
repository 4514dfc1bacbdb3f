"""The subjects of the laws: the ops, the rules and the kernels that a plugin contributes, as users of it get them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from attrs import field, fields

from rlx_core.contributions import (
    KINDS,
    BlockSpec,
    ExporterSpec,
    KernelSpec,
    LegalizationSpec,
    OpFamily,
    OpSpec,
    PassSpec,
    RuleSetSpec,
    RuleSpec,
    SchemeSpec,
)
from rlx_core.errors import PluginError, RlxError, UnknownNameError, nearest
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.block import Block
from rlx_core.ir.op import Op
from rlx_core.ir.schemes import Scheme
from rlx_core.ops import standard_ops
from rlx_core.passes.engine.base import LirPass, Pass
from rlx_core.passes.engine.rules import RewriteRule, RuleSet
from rlx_core.pipeline.contributed import EXPECTED, kernels_fault
from rlx_core.pipeline.kernels import Kernel
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.collect import Claim
from rlx_core.plugins.entry import PluginEntry, named_entry
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram, programs

TRIED: Final = ("ops", "rules", "kernels", "rulesets", "passes", "legalizations", "blocks", "schemes", "exporters")
"""The kinds of contributions that the laws are about."""

_Row = TypeVar("_Row")


@frozen
class ContributionSubject:
    """One record of a plugin, and the reason why it cannot be used; empty if it can."""

    name: str
    fault: str | None = None

    def __str__(self) -> str:
        return self.name


@frozen(eq=False)
class KernelRow:
    """A kernel that a plugin brings for a target."""

    target: str
    kernel: Kernel
    plugin: str

    def __str__(self) -> str:
        return f"kernel {self.kernel.name} for {self.target}"


@frozen(eq=False)
class RuleRow:
    """A rewrite rule of a rule set that a plugin brings."""

    rule: RewriteRule

    def __str__(self) -> str:
        return f"rewrite {self.rule.key}"


@frozen(eq=False)
class PassSubject:
    """A pass that a plugin brings, on graphs or on planned programs."""

    name: str
    load: type[Pass] | type[LirPass]

    def __str__(self) -> str:
        return f"pass {self.name}"


@frozen(eq=False)
class LegalizationRow:
    """The rewrite of one op in a legalization table that a plugin brings."""

    name: str
    op: type[Op]
    rewrite: Callable[..., Any]

    def __str__(self) -> str:
        return f"legalization {self.name} of {self.op.name}"


@frozen(eq=False)
class FormatRow:
    """A writer of files that a plugin brings, and the reader of the same suffix."""

    name: str
    suffix: str
    write: Callable[..., Any]
    read: Callable[..., Any]

    def __str__(self) -> str:
        return f"format {self.name} ({self.suffix})"


@frozen
class Subjects:
    """The subjects of the laws.

    Attributes:
        ops: Op classes, each with all its own rules.
        rules: Contributed rules, as (kind, op).
        kernels: Contributed kernels.
        rewrites: Contributed rewrite rules, passes and rows of legalization tables.
        blocks: Contributed HIR blocks.
        schemes: Contributed schemes of quantised weights.
        formats: Contributed writers of files that have a reader.
        contributions: Every record that refers to one of them, with its fault, if any.
    """

    ops: tuple[type[Op], ...] = ()
    rules: tuple[tuple[str, type[Op]], ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    contributions: tuple[ContributionSubject, ...] = field(default=())
    rewrites: tuple[RuleRow | PassSubject | LegalizationRow, ...] = ()
    blocks: tuple[type[Block], ...] = ()
    schemes: tuple[type[Scheme], ...] = ()
    formats: tuple[FormatRow, ...] = ()

    def __add__(self, other: Subjects) -> Subjects:
        return Subjects(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Subjects)))

    def rewrites_of(self, kind: type[_Row]) -> list[_Row]:
        """The contributed rewrites of one kind."""
        return [row for row in self.rewrites if isinstance(row, kind)]

    def programs(self) -> list[OpProgram]:
        """The samples of the ops, and those of the ops that the rules are for."""
        result = list(programs(self.ops))
        for kind, op in self.rules:
            result += [OpProgram(p.case, kind) for p in programs((op,))]
        return result


def host_with_module(word: str) -> PluginHost | None:
    """Return a host with the module or file `word` in addition to the installed plugins; `None` if the default host has it.

    The plugin's domain is the domain of its ops, else the last word of its name.
    """
    host = default_host()
    if entry_of(host, word) is not None:
        return None
    entry = named_entry(word)
    if "=" not in word and not word.endswith(".py"):
        domains = {op.name.partition(".")[0] for op in ops_of_module(word)}
        entry = named_entry(f"{domains.pop()}={word}") if len(domains) == 1 else entry
    return PluginHost([*host.entries, entry], policy=host.policy)


def entry_of(host: PluginHost, word: str) -> PluginEntry | None:
    """Return the plugin that a word names: its name, its distribution, its module or its file."""
    address = word.rpartition("=")[2]
    matching = (e for e in host.entries if e.matches(word) or address in (e.module, e.file))
    return next(matching, None)


def subjects_of(plugin: str) -> Subjects:
    """Return the contributions of a plugin, or of a module that holds one or a tuple `OPS`.

    Raises:
        UnknownNameError: There is no such plugin or module, or it contributes nothing that the laws try.
        PluginError: It cannot be activated.
    """
    host = default_host()
    entry = entry_of(host, plugin)
    result = Subjects() if entry is None else subjects_of_entry(host, entry)
    if not result.contributions:
        module = plugin.rpartition("=")[2] if entry is None or not entry.module else entry.module
        result = Subjects(ops=ops_of_module(module))
    if not result.ops and not result.contributions:
        raise UnknownNameError(
            f"--rlx-plugin: {plugin} offers no ops, rules or kernels",
            hint="give the module a tuple `OPS` of op classes",
        )
    return result


def subjects_of_entry(host: PluginHost, entry: PluginEntry) -> Subjects:
    registry = host.activate_for(*entry.conditions)
    failed = next((verdict for each, verdict in registry.absent if each.key == entry.key), None)
    if failed is not None:
        raise PluginError(f"--rlx-plugin: {entry.name} cannot be used: {failed.reason}")
    total = Subjects()
    for claim in registry.claims.values():
        if claim.entry.key == entry.key and claim.kind in TRIED:
            try:
                total += subject_of(host, claim)
            except RlxError as error:
                total += Subjects(contributions=(ContributionSubject(f"{claim.kind} {claim.name}", str(error)),))
    return total


def subject_of(host: PluginHost, claim: Claim) -> Subjects:
    """Return the subjects of one record.

    Raises:
        RlxError: It does not load, or the loaded object does not match the record.
    """
    here = (ContributionSubject(f"{claim.kind} {claim.name}"),)
    record: Any = claim.record
    loaded = record.load.resolve()
    if isinstance(record, OpSpec):
        if not (isinstance(loaded, type) and issubclass(loaded, Op)):
            raise PluginError(f"{record.load} is no op class; `define_op` makes one")
        if loaded.name != record.name:
            raise PluginError(f"{record.load} calls itself {loaded.name}, not {record.name}")
        return Subjects(ops=(loaded,), contributions=here)
    if isinstance(record, RuleSpec):
        if not callable(loaded):
            raise PluginError(f"{record.load} is no function, but {type(loaded).__name__}")
        return Subjects(rules=((record.kind, host.load("ops", record.op)),), contributions=here)
    if not isinstance(record, KernelSpec):
        return rewriting_of(host, record, loaded, here)
    if (fault := kernels_fault(loaded, record, host.registry())) is not None:
        raise PluginError(f"{record.load}: {fault}")
    rows = tuple(KernelRow(record.target, kernel, claim.entry.name) for kernel in loaded)
    return Subjects(kernels=rows, contributions=here)


def rewriting_of(host: PluginHost, record: Any, loaded: Any, here: tuple[ContributionSubject, ...]) -> Subjects:
    """Return the subjects of a record of a rule set, a pass, a legalization table, a block, a scheme or a writer.

    Raises:
        RlxError: The loaded object does not match the record.
    """
    kind = next(name for name, each in KINDS.items() if isinstance(record, each))
    if (fault := EXPECTED[kind](loaded, record, host.registry())) is not None:
        raise PluginError(f"{record.load}: {fault}")
    if isinstance(loaded, RuleSet):
        return Subjects(rewrites=tuple(RuleRow(rule) for rule in loaded), contributions=here)
    if isinstance(record, PassSpec | RuleSetSpec):
        return Subjects(rewrites=(PassSubject(record.name, loaded),), contributions=here)
    if isinstance(record, LegalizationSpec):
        rows = tuple(LegalizationRow(record.name, op, rewrite) for op, rewrite in loaded.rows())
        return Subjects(rewrites=rows, contributions=here)
    if isinstance(record, BlockSpec):
        return Subjects(blocks=(loaded,), contributions=here)
    if isinstance(record, SchemeSpec):
        return Subjects(schemes=(loaded,), contributions=here)
    assert isinstance(record, ExporterSpec), "every kind of `TRIED` has its case"
    return Subjects(formats=tuple(formats_of(host, record, loaded)), contributions=here)


def formats_of(host: PluginHost, record: ExporterSpec, write: Callable[..., Any]) -> Iterator[FormatRow]:
    """A row for each suffix that has a reader; a suffix without one has no round trip."""
    for suffix in record.suffixes:
        importers = [each for each in host.registry().importers.values() if suffix in each.suffixes]
        if importers:
            matching = [each for each in importers if each.name == record.name]
            yield FormatRow(record.name, suffix, write, (matching or importers)[0].load.resolve())


def ops_of(plugin: str) -> tuple[type[Op], ...]:
    """Return the ops of a plugin by its name, or the ops of a module: its `OPS`, or the result of its `rlx_ops` hook.

    Raises:
        UnknownNameError: There is no such plugin or module, or it offers nothing.
    """
    return subjects_of(plugin).ops


def ops_of_module(module: str) -> tuple[type[Op], ...]:
    """The ops that a module offers, which may be none.

    Raises:
        UnknownNameError: There is no such module.
    """
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnknownNameError(f"--rlx-plugin: there is no plugin {module!r}, and no module {error.name!r}") from error
    offered = imported.OPS if hasattr(imported, "OPS") else imported.rlx_ops() if hasattr(imported, "rlx_ops") else ()
    return tuple(op for entry in offered for op in classes_of(entry))


def classes_of(entry: object) -> Iterator[type[Op]]:
    """Yield the op classes of one entry of `OPS` or of `rlx_ops`."""
    if isinstance(entry, OpFamily):
        yield from (spec.load.resolve() for spec in entry)
    elif isinstance(entry, OpSpec):
        yield entry.load.resolve()
    elif isinstance(entry, OpFunction):
        yield entry.op
    elif isinstance(entry, type) and issubclass(entry, Op):
        yield entry


def select(subjects: Subjects, names: Sequence[str]) -> Subjects:
    """Return the subjects of the ops with these names, with or without their domain; everything if no name is given.

    Raises:
        UnknownNameError: Nothing concerns one of the names.
    """
    if not names:
        return subjects
    ops = dict.fromkeys(
        [*subjects.ops, *(op for _, op in subjects.rules), *(row.kernel.op for row in subjects.kernels)]
    )
    ops |= dict.fromkeys(row.op for row in subjects.rewrites_of(LegalizationRow))
    known = {op.name: op for op in ops if op.name} | {op.name.partition(".")[2]: op for op in ops if op.name}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"--rlx-op: there is no op {name!r}", hint=nearest(name, known))
    chosen = dict.fromkeys(known[name] for name in names)
    return Subjects(
        tuple(op for op in chosen if op in subjects.ops),
        tuple((kind, op) for kind, op in subjects.rules if op in chosen),
        tuple(row for row in subjects.kernels if row.kernel.op in chosen),
        subjects.contributions,
        tuple(row for row in subjects.rewrites if isinstance(row, LegalizationRow) and row.op in chosen),
    )


def standard() -> Subjects:
    return Subjects(ops=standard_ops())

"""What the laws try: the ops, the rules and the kernels that a plugin contributes, as users of it meet them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field

from rlx_core.contributions import KernelSpec, OpFamily, OpSpec, RuleSpec
from rlx_core.errors import PluginError, RlxError, UnknownNameError, nearest
from rlx_core.ir.apply import OpFunction
from rlx_core.ir.op import Op
from rlx_core.ops import standard_ops
from rlx_core.pipeline.contributed import kernels_fault
from rlx_core.pipeline.select.kernels import Kernel
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.collect import Claim
from rlx_core.plugins.entry import PluginEntry, named_entry
from rlx_core.system.records import frozen
from rlx_core.testing.cases import Program, programs

__all__ = ["Contribution", "KernelRow", "Subjects", "host_with_module", "ops_of", "select", "subjects_of"]


@frozen
class Contribution:
    """One record of a plugin, and why it cannot be used; nothing if it can."""

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


@frozen
class Subjects:
    """What is tried.

    Attributes:
        ops: Op classes, each with all its own rules.
        rules: Contributed rules, as (kind, op).
        kernels: Contributed kernels.
        contributions: Every record that leads to one of them, with what is wrong with it.
    """

    ops: tuple[type[Op], ...] = ()
    rules: tuple[tuple[str, type[Op]], ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    contributions: tuple[Contribution, ...] = field(default=())

    def __add__(self, other: Subjects) -> Subjects:
        return Subjects(
            self.ops + other.ops,
            self.rules + other.rules,
            self.kernels + other.kernels,
            self.contributions + other.contributions,
        )

    def programs(self) -> list[Program]:
        """The samples of the ops, and those of the ops that the rules are for."""
        found = list(programs(self.ops))
        for kind, op in self.rules:
            found += [Program(p.case, kind) for p in programs((op,))]
        return found


def host_with_module(word: str) -> PluginHost | None:
    """A host that knows the module or file `word` besides what is installed; `None` if it knows it as it is.

    The plugin's domain is that of the ops it offers, else the last word of its name.
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
    """The plugin that a word means: its name, its distribution, its module or its file."""
    address = word.rpartition("=")[2]
    matching = (e for e in host.entries if e.matches(word) or address in (e.module, e.file))
    return next(matching, None)


def subjects_of(plugin: str) -> Subjects:
    """What a plugin, or a module that holds one or a tuple `OPS`, contributes.

    Raises:
        UnknownNameError: There is no such plugin or module, or it contributes nothing that the laws try.
        PluginError: It cannot be activated.
    """
    host = default_host()
    entry = entry_of(host, plugin)
    found = Subjects() if entry is None else subjects_of_entry(host, entry)
    if not found.contributions:
        module = plugin.rpartition("=")[2] if entry is None or not entry.module else entry.module
        found = Subjects(ops=ops_of_module(module))
    if not found.ops and not found.contributions:
        raise UnknownNameError(
            f"--rlx-plugin: {plugin} offers no ops, rules or kernels",
            hint="give the module a tuple `OPS` of op classes",
        )
    return found


def subjects_of_entry(host: PluginHost, entry: PluginEntry) -> Subjects:
    registry = host.activate_for(*entry.conditions)
    failed = next((verdict for each, verdict in registry.absent if each.key == entry.key), None)
    if failed is not None:
        raise PluginError(f"--rlx-plugin: {entry.name} cannot be used: {failed.reason}")
    total = Subjects()
    for claim in registry.claims.values():
        if claim.entry.key == entry.key and claim.kind in ("ops", "rules", "kernels"):
            try:
                total += subject_of(host, claim)
            except RlxError as error:
                total += Subjects(contributions=(Contribution(f"{claim.kind} {claim.name}", str(error)),))
    return total


def subject_of(host: PluginHost, claim: Claim) -> Subjects:
    """What one record leads to.

    Raises:
        RlxError: It does not load, or what it leads to is something else than it says.
    """
    here = (Contribution(f"{claim.kind} {claim.name}"),)
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
    assert isinstance(record, KernelSpec)
    if (fault := kernels_fault(loaded, record, host.registry())) is not None:
        raise PluginError(f"{record.load}: {fault}")
    rows = tuple(KernelRow(record.target, kernel, claim.entry.name) for kernel in loaded)
    return Subjects(kernels=rows, contributions=here)


def ops_of(plugin: str) -> tuple[type[Op], ...]:
    """The ops of a plugin by its name, or those that a module offers: its `OPS`, or what its `rlx_ops` hook returns.

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
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnknownNameError(f"--rlx-plugin: there is no plugin {module!r}, and no module {error.name!r}") from error
    offered = found.OPS if hasattr(found, "OPS") else found.rlx_ops() if hasattr(found, "rlx_ops") else ()
    return tuple(op for entry in offered for op in classes_of(entry))


def classes_of(entry: object) -> Iterator[type[Op]]:
    """The op classes that one entry of `OPS` or of `rlx_ops` stands for."""
    if isinstance(entry, OpFamily):
        yield from (spec.load.resolve() for spec in entry)
    elif isinstance(entry, OpSpec):
        yield entry.load.resolve()
    elif isinstance(entry, OpFunction):
        yield entry.op
    elif isinstance(entry, type) and issubclass(entry, Op):
        yield entry


def select(subjects: Subjects, names: Sequence[str]) -> Subjects:
    """What concerns the ops with these names, with or without their domain; everything if no name is given.

    Raises:
        UnknownNameError: Nothing concerns one of the names.
    """
    if not names:
        return subjects
    ops = dict.fromkeys(
        [*subjects.ops, *(op for _, op in subjects.rules), *(row.kernel.op for row in subjects.kernels)]
    )
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
    )


def standard() -> Subjects:
    return Subjects(ops=standard_ops())

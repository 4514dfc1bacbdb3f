"""A configuration and what plugins provide, resolved for one target: exactly which passes run, with which options.

A `CompilationPlan` is a value that prints, hashes and runs. Its hash covers everything that can change a program (passes,
options, who provides them in which version, the target's kernels, policies) and nothing that cannot (where it was configured,
what is printed, in which order packages were installed).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import attrs
from attrs import evolve

from rlx_core.errors import ConfigError, Fact, PassOrderError, RlxError, UnknownNameError, nearest
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Lir
from rlx_core.passes.engine.apply_rules import pass_of
from rlx_core.passes.engine.base import LEGAL, LOWERED, Context, LirPass, Pass, PassRecord
from rlx_core.passes.engine.order import check_order
from rlx_core.passes.engine.rules import RuleSet
from rlx_core.passes.engine.runner import NO_WATCH, PassesRun, Watch, run_passes
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.config.records import STAGES, Configuration, PipelineConfig, split_entry
from rlx_core.pipeline.config.structure import structure
from rlx_core.pipeline.contributed import legalization_tables
from rlx_core.pipeline.deferred import DeferredPass
from rlx_core.pipeline.dispatch import Dispatcher
from rlx_core.pipeline.placement import Line, check_places, with_included
from rlx_core.pipeline.set_up import CORE, full_name
from rlx_core.plugins.digest import canonical, sha256
from rlx_core.plugins.registry import Registry
from rlx_core.system.records import frozen


@frozen(eq=False)
class PlannedPass:
    """One line of a resolved pipeline.

    Attributes:
        stage: The list that it is in.
        record: The pass with its options.
        origin: The source of the pipeline, and the position in it.
        plugin: Its provider: name, distribution and version.
        digest: The digest of the record that provides it.
        may_be_deferred: Whether its record names the ops for which it is imported.
    """

    stage: str
    record: PassRecord
    origin: str
    plugin: str
    digest: str
    may_be_deferred: bool = False

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def options(self) -> dict[str, Any]:
        return self.record.options()

    @property
    def stored_options(self) -> dict[str, Any]:
        """The options that the hash of the plan covers; of a pass that may be deferred, only other values than the defaults."""
        if isinstance(self.record, DeferredPass):
            return {}
        defaults = type(self.record)().options() if self.may_be_deferred else {}
        return {name: value for name, value in self.options.items() if name not in defaults or value != defaults[name]}


@frozen
class Extension:
    """A part of a plan that is not a pass, with its provider: the target, a table of kernels, or a table of target rewrites."""

    kind: str
    name: str
    plugin: str
    digest: str


@frozen(eq=False)
class CompilationPlan:
    """The resolved plan of a compilation; see the module's docstring.

    Attributes:
        pipeline: The name of the pipeline, and in `source` where it is written.
        passes: Every pass in order, HIR, then MIR, then LIR; before them the ones that run before differentiation.
        target: The target of the compilation; `None` for a plan that only cleans.
        dispatcher: The target's answers under the configured policy.
        configuration: The configuration that was resolved.
        left_out: Passes that the pipeline lists and that do not run, each with the reason.
        extensions: The providers of its target and tables.
    """

    pipeline: str
    source: str
    passes: tuple[PlannedPass, ...]
    target: Target | None
    dispatcher: Dispatcher | None
    configuration: Configuration
    left_out: tuple[str, ...] = ()
    extensions: tuple[Extension, ...] = ()

    def run(self, graph: Graph, watch: Watch = NO_WATCH) -> PassesRun:
        """The graph after all passes of the HIR and MIR lists.

        Raises:
            LegalizeError: The target cannot run some nodes.
            VerifyError: A pass broke the graph; it is named.
        """
        chosen = [p.record for p in self.passes if isinstance(p.record, Pass) and p.stage != "forward"]
        watch = watch if self.configuration.verify else evolve(watch, check=None)
        return run_passes(chosen, graph, self.context, watch)

    def refine(self, program: Lir) -> Lir:
        """A planned program after all passes of the LIR list."""
        for planned in self.passes:
            if isinstance(planned.record, LirPass):
                with contained("passes", planned.name, "the pass"):
                    program = planned.record.run(program, self.context)
                    if not isinstance(program, Lir):
                        raise TypeError(f"`run` returned {type(program).__name__}, not a Lir")
        return program

    @property
    def imported_passes(self) -> list[PassRecord]:
        """Its passes, without the deferred ones that met none of their ops."""
        records = (
            p.record.imported if isinstance(p.record, DeferredPass) and p.record.is_imported else p.record
            for p in self.passes
        )
        return [each for each in records if not isinstance(each, DeferredPass)]

    @cached_property
    def context(self) -> Context:
        """The context of the passes."""
        settings: dict[str, Any] = {
            "fusion-policy": self.configuration.fusion.policy,
            "fusion": self.configuration.fusion,
            "precision": self.configuration.precision,
            "options": self.configuration.options,
        }
        return Context(self.target, settings, self.dispatcher)

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The plan as plain data: everything that its hash covers."""
        config = self.configuration
        return {
            "pipeline": self.pipeline,
            "target": None if self.target is None else self.target.name,
            "passes": [
                {
                    "stage": p.stage,
                    "name": p.name,
                    "options": plain(p.stored_options),
                    "plugin": p.plugin,
                    "digest": p.digest,
                }
                for p in self.passes
            ],
            "extensions": [attrs.asdict(each) for each in self.extensions],
            "kernels": self.kernel_digest,
            "legalizations": [] if self.dispatcher is None else [t.name for t in self.dispatcher.tables],
            "properties": {} if self.target is None else dict(sorted(self.target.properties.items())),
            "dispatch": plain(attrs.asdict(config.dispatch)),
            "precision": plain(attrs.asdict(config.precision)),
            "fusion": plain(attrs.asdict(config.fusion)),
            "memory": plain(attrs.asdict(config.memory)),
            "options": plain(config.options),
        }

    @cached_property
    def kernel_digest(self) -> str:
        """The digest of the target's kernels, their providers, and the types that they take.

        It is empty if the table imports its rows by op: the version of the backend, which `extensions` has, determines them.
        """
        if self.target is None or self.target.kernels.is_imported_by_op:
            return ""
        rows = sorted(
            [
                k.name,
                k.op.name,
                k.plugin or "",
                sorted(d.name for d in k.dtypes or ()),
                [c.name for c in k.when],
                k.priority,
            ]
            for k in self.target.kernels
        )
        return sha256(rows)

    @cached_property
    def hash(self) -> str:
        """Hex digest of the summary; the same for one configuration and one set of packages, everywhere."""
        return plan_hash(self.summary)

    @property
    def plugins(self) -> tuple[str, ...]:
        """Everyone who takes part, by name."""
        return tuple(sorted({p.plugin for p in self.passes} | {e.plugin for e in self.extensions}))

    def to_json(self) -> str:
        """The summary and the hash, with sorted keys."""
        return json.dumps(
            {**self.summary, "hash": self.hash, "left_out": list(self.left_out)}, indent=2, sort_keys=True
        )

    def __str__(self) -> str:
        target = "no target" if self.target is None else self.target.name
        lines = [f"plan {self.hash[:12]}: pipeline {self.pipeline} for {target}"]
        width = max([len(p.name) for p in self.passes] + [4])
        for stage in STAGES:
            chosen = [p for p in self.passes if p.stage == stage]
            if chosen:
                lines.append(f"  {stage}")
            for planned in chosen:
                options = ", ".join(f"{k} = {v!r}" for k, v in planned.options.items())
                lines.append(
                    f"    {planned.name:<{width}}  {planned.plugin}" + (f"  {{ {options} }}" if options else "")
                )
        lines += [f"  left out: {name}" for name in self.left_out]
        lines.append(f"  from {self.source}" if self.passes else "  no pass runs")
        lines.append(f"  plugins: {', '.join(self.plugins) or 'none'}")
        return "\n".join(lines)

    __repr__ = __str__


def plan_hash(summary: Mapping[str, Any]) -> str:
    """The hash of a plan from its summary, which every program that was made by it keeps among its options."""
    return sha256(canonical(summary))


def plain(value: Any) -> Any:
    """Return a value as plain JSON data; other objects are converted to text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, frozenset | set):
        return sorted(plain(v) for v in value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# -------------------------------------------------------------------------------------------- resolving


def resolve_plan(configuration: Configuration, registry: Registry, target: Target | None = None) -> CompilationPlan:
    """The plan of a configuration for a target; without one it has no legalisation.

    Raises:
        ConfigError: A pass has no such option, or a value of the wrong kind; a name stands in the wrong stage.
        PassOrderError: A pass requires a property that its position does not have, or the result would not be legal.
        UnknownNameError, PluginError: A pipeline or a pass is not provided, or its plugin is not usable.
    """
    name, table, source = find_pipeline(configuration, registry)
    listed = [line for stage in STAGES for line in lines_of(name, table, stage)]
    lines = with_included(listed, configuration, registry)
    planned: list[PlannedPass] = []
    for line in lines:
        is_lowered = any(LOWERED in p.record.ensures for p in planned)
        planned.append(plan_pass(configuration, registry, source, line, is_lowered=is_lowered))
    active = [p for p in planned if configuration.fusion.enabled or not p.record.is_fusion]
    left_out = tuple(f"{p.name} (fusion.enabled is false)" for p in planned if p not in active)
    check_unused_options(configuration, planned, registry)
    check_printing(configuration, planned, registry)
    for stage in STAGES:
        stage_lines = [line for line, p in zip(lines, planned, strict=True) if line.stage == stage and p in active]
        check_places(
            [line.name for line in stage_lines],
            dict(enumerate(f"{line.where} of {source}" for line in stage_lines)),
            registry,
        )
    dispatcher = None
    if target is not None:
        dispatcher = Dispatcher(target, configuration.dispatch, legalization_tables(registry, target.name))
    try:
        check_order(
            [p.record for p in active if p.stage in ("hir", "mir")],
            required=() if target is None else (LEGAL,),
            where=dict(enumerate(p.origin for p in active if p.stage in ("hir", "mir"))),
        )
    except PassOrderError as error:
        raise error.with_fact(Fact("pipeline", name, source)) from None
    return CompilationPlan(
        name, source, tuple(active), target, dispatcher, configuration, left_out, extensions(registry, target)
    )


def lines_of(pipeline: str, table: PipelineConfig, stage: str) -> Iterator[Line]:
    """The lines of a pipeline for one stage."""
    entries = {"forward": table.forward, "hir": table.hir, "mir": table.mir, "lir": table.lir}[stage]
    for place, entry in enumerate(entries):
        yield Line(stage, f"pipeline.{pipeline}.{stage}[{place}]", entry)


def forward_passes(configuration: Configuration, registry: Registry) -> tuple[Pass, ...]:
    """The passes that run on a function before it is differentiated.

    To a pass of this list a block is an op like any other, which its patterns do not know.

    Raises:
        ConfigError, UnknownNameError, PassOrderError: See `resolve_plan`.
    """
    name, table, source = find_pipeline(configuration, registry)
    planned = [plan_pass(configuration, registry, source, line) for line in lines_of(name, table, "forward")]
    active = [p for p in planned if configuration.fusion.enabled or not p.record.is_fusion]
    check_order([p.record for p in active], initial=(LOWERED,), where={i: p.origin for i, p in enumerate(active)})
    return tuple(p.record for p in active if isinstance(p.record, Pass))


def find_pipeline(configuration: Configuration, registry: Registry) -> tuple[str, PipelineConfig, str]:
    """The pipeline that the configuration uses: its name, its lists, and where it is written."""
    name = configuration.use
    if name in configuration.pipeline:
        return name, configuration.pipeline[name], configuration.origin_of(f"pipeline.{name}")
    full = full_name(name)
    if full not in registry.pipelines and ("pipelines", full) not in registry.refused:
        known = [*configuration.pipeline, *(p.removeprefix(f"{CORE}.") for p in registry.pipelines)]
        raise UnknownNameError(
            f"pipeline: {name!r} is not configured and no plugin provides it (there are {', '.join(known) or 'none'})",
            Fact("said by", configuration.origin_of("use")),
            hint=nearest(name, known),
        )
    spec = registry.require("pipelines", full)
    owner = str(registry.owner("pipelines", full))
    return name, structure(spec.config, PipelineConfig, f"pipeline {full}", owner), owner


def plan_pass(
    configuration: Configuration, registry: Registry, source: str, line: Line, *, is_lowered: bool = False
) -> PlannedPass:
    """One line of a pipeline, resolved.

    Args:
        is_lowered: Whether programs are lowered at this line, which is all that a deferred pass may require.
    """
    where, stage = line.where, line.stage
    name, own_options = split_entry(line.entry, where)
    full = full_name(name)
    kind = kind_of(registry, full, where, source)
    general = {**configuration.passes.get(full, {}), **configuration.passes.get(full.removeprefix(f"{CORE}."), {})}
    options = {**general, **own_options}

    def load() -> Any:
        try:
            contribution = registry.load(kind, full)
        except RlxError as error:
            raise error.with_fact(Fact("used in", where, source)) from error.__cause__
        record = pass_of(contribution) if isinstance(contribution, RuleSet) else contribution
        expect_stage(record, full, stage, where, source)
        said_in = f"{source}, {configuration.origin_of(f'passes.{name}')}"
        return structure(options, record, f"{where}: {name}", said_in)

    ops = frozenset(registry.passes[full].ops) if full in registry.passes else frozenset()
    # Without fusion it must be known whether the pass is one.
    is_deferred = bool(ops) and not options and configuration.fusion.enabled and (is_lowered or stage == "forward")
    instance = DeferredPass(full, ops, load) if is_deferred else load()
    plugin = provider(registry, kind, full)
    return PlannedPass(stage, instance, f"{where} of {source}", plugin, registry.digest(kind, full), bool(ops))


def kind_of(registry: Registry, full: str, where: str, source: str) -> str:
    """Return whether a name is a pass or a rule set.

    Raises:
        UnknownNameError: It is neither; the nearest of both are looked through.
        PluginError: The plugin of its domain cannot be used.
    """
    for kind in ("passes", "rulesets"):
        if full in registry.table(kind) or (kind, full) in registry.refused:
            return kind
    # Another error is the cause: the plugin of its domain failed, is blocked, or does not fit.
    with suppress(UnknownNameError):
        registry.require("passes", full)
    known = [*registry.passes, *registry.rulesets]
    short = [k.removeprefix(f"{CORE}.") for k in known]
    raise UnknownNameError(
        f"{where}: no plugin provides a pass or a rule set called {full!r}",
        Fact("pipeline", source),
        hint=nearest(full, known) or nearest(full.removeprefix(f"{CORE}."), short),
    )


def expect_stage(record: Any, name: str, stage: str, where: str, source: str) -> None:
    """Require that a record is a pass, and one for this list."""
    if not (isinstance(record, type) and issubclass(record, PassRecord)):
        raise ConfigError(
            f"{where}: {name} is {record!r}, which is neither a pass nor a rule set", Fact("file", source)
        )
    if issubclass(record, LirPass) != (stage == "lir"):
        right = "lir" if issubclass(record, LirPass) else "hir or mir"
        raise ConfigError(f"{where}: {name} is a pass of {right}, not of {stage}", Fact("pipeline", source))


def check_unused_options(configuration: Configuration, planned: Sequence[PlannedPass], registry: Registry) -> None:
    """Require that every table of pass options is about a pass that exists; one that merely does not run is fine."""
    known = {*registry.passes, *registry.rulesets}
    for name in configuration.passes:
        if full_name(name) not in known and not any(p.name == full_name(name) for p in planned):
            raise ConfigError(
                f"passes.{name}: no plugin provides a pass of this name",
                Fact("file", configuration.origin_of(f"passes.{name}")),
                hint=nearest(name, [k.removeprefix(f"{CORE}.") for k in known]),
            )


def check_printing(configuration: Configuration, planned: Sequence[PlannedPass], registry: Registry) -> None:
    """Require that the passes around which programs are printed exist; one that merely does not run is fine."""
    known = {*registry.passes, *registry.rulesets, *(p.name for p in planned)}
    short = {each.partition(".")[2] for each in known}
    for key in ("before", "after"):
        words: tuple[str, ...] = getattr(configuration.printing, key)
        for word in words:
            if word != "*" and word not in known and word not in short:
                raise ConfigError(
                    f"printing.{key}: no plugin provides a pass called {word!r}",
                    Fact("said by", configuration.origin_of(f"printing.{key}")),
                    hint=nearest(word, [*known, *short]),
                )


def extensions(registry: Registry, target: Target | None) -> tuple[Extension, ...]:
    """The target, and the tables that plugins bring for it."""
    if target is None:
        return ()
    names = [("backends", target.name)] if target.name in registry.backends else []
    names += [("kernels", spec.name) for spec in registry.kernels_for(target.name)]
    names += [("legalizations", spec.name) for spec in registry.legalizations_for(target.name)]
    return tuple(Extension(*key, provider(registry, *key), registry.digest(*key)) for key in names)


def provider(registry: Registry, kind: str, name: str) -> str:
    """Return the provider of a contribution: distribution and version."""
    owner = registry.owner(kind, name)
    return f"{owner.distribution} {owner.version}"

"""The road from a graph to something that runs, in the order in which it happens.

configure → find plugins and target → resolve the plan → passes → split off work on parameters → schedule and plan memory →
the backend's own compiler. Everything that was decided on the way is in the `Report`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs
import numpy as np
from attrs import evolve, field, frozen

from rlx_core.errors import FormatError
from rlx_core.hooks import API_VERSION
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import Graph, leaf_name, nested_graphs, ops_inside
from rlx_core.ir.hir import has_blocks
from rlx_core.ir.lir import Lir
from rlx_core.ir.module import Module
from rlx_core.ir.provenance import Source
from rlx_core.ir.serialize import load_plan, save
from rlx_core.pipeline.backend import Backend, ObjectStore, Program, Target
from rlx_core.pipeline.config import Configuration, MemoryConfig, PluginConfig
from rlx_core.pipeline.config_reading import load_config, load_plugin_config
from rlx_core.pipeline.events import Events
from rlx_core.pipeline.op_table import HostOps
from rlx_core.pipeline.providers import activate_options, activate_pipeline
from rlx_core.pipeline.report import Report
from rlx_core.pipeline.showing import show, watch_for
from rlx_core.pipeline.targets import find_target, with_contributed_kernels
from rlx_core.plugins import PluginHost, PluginPolicy, Registry, default_host, host_with, package_of, stamp_of

if TYPE_CHECKING:  # imported where something has to be compiled; a program from the cache needs none of it
    from rlx_core.passes.fusion_report import FusionReport
    from rlx_core.passes.runner import PassRun
    from rlx_core.pipeline.dispatch import DispatchReport
    from rlx_core.pipeline.lower import PlanOptions
    from rlx_core.pipeline.plan import Plan

__all__ = ["Compiled", "Config", "ProgramCache", "compile_graph"]

Config = Configuration | Mapping[str, Any] | str | os.PathLike[str] | None
"""How a configuration may be given: itself, a table, the path of a file, or nothing (the nearest file)."""


@frozen(eq=False)
class Compiled:
    """A compiled program: one that can run, or a template that becomes one when its sizes are bound.

    Attributes:
        lir: The plan.
        backend: The target's compiler.
        target: The target, with the kernels that plugins contribute.
        memory: How a template's memory is planned again.
        report: What the compilation came to.
        objects: Where its machine code is kept between processes, or `None`.
        sources: Where the user made each input and parameter. A cached program may have been another function's.
    """

    lir: Lir
    backend: Backend
    target: Target
    memory: MemoryConfig
    report: Report
    objects: ObjectStore | None = None
    sources: Mapping[str, Source | None] = field(factory=dict)

    @property
    def is_template(self) -> bool:
        """Whether sizes are still unknown."""
        return bool(self.lir.graph.symbols)

    def specialize(self, binding: DimBinding) -> Lir:
        """The planned program for one binding of the sizes."""
        if not self.is_template:
            return self.lir
        from rlx_core.pipeline.dynamic import specialize

        return specialize(self.lir, binding, self.target, options=plan_options(self.memory))

    def program_for(self, lir: Lir) -> Program:
        """What the backend makes of a planned program."""
        return self.backend.build(lir, self.target, lir.options, self.objects)

    def report_for(self, lir: Lir, program: Program | None = None) -> Report:
        """The report with the memory plan of a specialised program, and where its code came from if there is some."""
        stages = {**self.report.stages, "LIR steps": len(lir.steps)}
        if program is None:
            return evolve(self.report, lir=lir, stages=stages, code=None)
        checked = program.reason_without_entry
        return evolve(self.report, lir=lir, stages=stages, code=program.code_origin, checked=checked)


class ProgramCache(Protocol):
    """Where compiled programs are kept; `rlx_core.runtime.cache.CompileCache` is one."""

    @property
    def objects(self) -> ObjectStore | None:
        """Where backends keep machine code between processes."""

    def get_or_compile(
        self,
        key: str,
        compile: Callable[[], Compiled],
        *,
        to_bytes: Callable[[Compiled], bytes] | None = None,
        from_bytes: Callable[[bytes], Compiled] | None = None,
    ) -> Compiled: ...


def compile_graph(
    graph: Graph,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    donations: Mapping[str, int | None] | None = None,
    output_names: Sequence[str] | None = None,
    cache: Callable[[Configuration], ProgramCache] | None = None,
) -> Compiled:
    """Compile a graph, HIR or MIR.

    Args:
        graph: The program; it is not consumed.
        target: The device; by default what the configuration says, else the preferred one that is available.
        config: The configuration; see `Config`.
        host: The plugins to use; everything installed by default.
        donations: Inputs whose arrays the program may overwrite, each with the output that is its next value.
        output_names: What the outputs are called.
        cache: Where to look first, and what to add to, for a configuration.

    Raises:
        ConfigError, PassOrderError: The configuration is wrong.
        DeviceError, DeviceUnavailableError: The target is not known, or cannot be used here.
        LegalizeError: The target cannot run some nodes, whatever they are rewritten to.
    """
    start = time.perf_counter()
    plugins, configuration = set_up(config, host)
    job = prepare_job(graph, plugins, configuration, target, dict(donations or {}), output_names)
    job.seconds["configure"] = time.perf_counter() - start
    job.events.tell("compile-start", key=job.key)
    found, source = find_or_compile(job, None if configuration.printing.shows_passes else cache)
    job.events.tell("compile-end", key=job.key, source=source, seconds=time.perf_counter() - start)
    report = evolve(found.report, name=graph.name, cache=source)
    return show(evolve(found, report=report, sources=sources_of(graph)), configuration.printing)


def find_or_compile(
    job: Job, cache: Callable[[Configuration], ProgramCache] | None
) -> tuple[Compiled, Literal["compiled", "memory", "disk"]]:
    """The result of a job, and where it came from; a new one is kept in the cache.

    Nothing is kept of a program with ops from a lone file or a notebook: they may mean something else the next time. What
    other plugins without a stamp have a say in is kept for this process.
    """
    if cache is None or job.has_nameless_ops:
        return job.compile(), "compiled"
    source: Literal["compiled", "memory", "disk"] = "memory"
    kept = cache(job.configuration)

    def compile_now() -> Compiled:
        nonlocal source
        source = "compiled"
        job.events.tell("cache-miss", key=job.key)
        job.backend.expect(job.configuration.options, kept.objects)
        return job.compile()

    def read(data: bytes) -> Compiled:
        nonlocal source
        source = "disk"
        return job.restore(data)

    if job.stamp is None:
        found = kept.get_or_compile(job.key, compile_now)
    else:
        found = kept.get_or_compile(job.key, compile_now, to_bytes=job.stored, from_bytes=read)
    if source != "compiled":
        job.events.tell("cache-hit", key=job.key, source=source)
    return evolve(found, objects=kept.objects), source


def sources_of(graph: Graph) -> dict[str, Source | None]:
    """Where the user made each input and parameter."""
    return {leaf_name(v): v.node.origin.source for v in (*graph.inputs, *graph.params)}


@frozen(eq=False)
class Job:
    """One compilation: everything that decides its result.

    Attributes:
        graph: The program as it was given.
        configuration: What was said about it.
        target: The device with all contributed kernels.
        backend: Its compiler.
        registry: Everybody who takes part.
    """

    graph: Graph
    configuration: Configuration
    target: Target
    backend: Backend
    host: PluginHost
    registry: Registry
    donations: Mapping[str, int | None]
    output_names: Sequence[str] | None
    seconds: dict[str, float] = field(factory=dict)

    @cached_property
    def events(self) -> Events:
        return Events(self.registry, self.graph.name, self.target.name)

    @cached_property
    def plan(self) -> Plan:
        """The resolved pipeline; a result that is found in a cache does without."""
        from rlx_core.pipeline.plan import resolve_plan

        return resolve_plan(self.configuration, self.registry, self.target)

    @cached_property
    def packages(self) -> frozenset[str]:
        """The packages of the program's ops: what they decompose into is their code's, whether a plugin offers them or not."""
        return frozenset(package_of(type(op)) for op in ops_inside(self.graph))

    @cached_property
    def has_nameless_ops(self) -> bool:
        """Whether there is an op whose code has no stamp."""
        return stamp_of(self.packages) is None

    @cached_property
    def stamp(self) -> str | None:
        """What stands for all code that has a say in the result; `None` where some of it has no stamp."""
        return self.host.stamp(self.packages)

    @cached_property
    def key(self) -> str:
        """Hex digest of all of it: the name of the result in caches.

        What the pipeline resolves to follows from the configuration and the plugins. Only where plugins have no stamp is
        it resolved to find out.
        """
        resolved = {"plan": self.plan.hash} if self.stamp is None else {"plugins": self.stamp, **settled(self)}
        return fingerprint(
            self.graph,
            context={
                "rlx": API_VERSION,
                "numpy": np.__version__,  # it folds constants
                "backend": self.registry.digest("backends", self.target.name),
                "donations": self.donations,
                "outputs": list(self.output_names or ()),
                **resolved,
            },
        )

    def compile(self) -> Compiled:
        """All passes, the split of parameter work, the plan."""
        from rlx_core.passes.fusion_report import fusion_report
        from rlx_core.pipeline.lower import make_lir
        from rlx_core.pipeline.prepare import split_prepare

        with self.timed("passes"):
            run = self.plan.run(self.graph, watch_for(self.configuration.printing, self.events))
        with self.timed("plan"):
            prepared = split_prepare(run.graph, self.target, pinned=tuple(self.donations))
            lir = make_lir(
                prepared.graph,
                self.target,
                output_names=self.output_names,
                donations=self.donations,
                prepare=prepared.prepare,
                options=plan_options(self.configuration.memory),
                resolved=self.plan.summary,
                fingerprint=self.key,
            )
            lir = self.plan.refine(lir)
        stages = {"HIR nodes": len(self.graph)} if has_blocks(self.graph) else {}
        stages |= {"MIR nodes": len(run.graph)}
        fusion = fusion_report(self.graph, run, [p.made for p in self.plan.passes])
        dispatch = run.notes["dispatch"]
        return self.finished(lir, stages, run.passes, lambda: dispatch, prepared.nbytes, fusion)

    def stored(self, compiled: Compiled) -> bytes:
        """The bytes of a compiled program that another process can go on from."""
        return save(Module.of_lir(compiled.lir))

    def restore(self, data: bytes) -> Compiled:
        """The compiled program from its bytes; any fault in them raises.

        The plan was verified before it was stored, and its digest says that it is still the same.
        """
        with self.timed("read"):
            lir = load_plan(data, HostOps(self.host))
            if lir.fingerprint != self.key:
                raise FormatError(f"cache: the entry is not program {self.key[:12]}")
        return self.finished(lir, {"MIR nodes": len(lir.graph)}, (), lambda: self.survey(lir), 0)

    def survey(self, lir: Lir) -> DispatchReport:
        """How each op of a program from the cache comes to be run."""
        from rlx_core.pipeline.dispatch import DispatchReport
        from rlx_core.pipeline.legalize import survey

        dispatcher = self.plan.dispatcher
        assert dispatcher is not None, "a job has a target"
        rows, _ = survey(lir.graph, dispatcher)
        return DispatchReport(self.target.name, tuple(rows))

    def finished(
        self,
        lir: Lir,
        stages: Mapping[str, int],
        passes: tuple[PassRun, ...],
        dispatch: Callable[[], DispatchReport],
        prepared_nbytes: int,
        fusion: FusionReport | None = None,
    ) -> Compiled:
        report = Report(
            self.graph.name,
            self.target.name,
            {**stages, "LIR steps": len(lir.steps)},
            passes,
            dispatch,
            lir,
            seconds=self.seconds,
            prepared_nbytes=prepared_nbytes,
            fusion=fusion,
            device=self.target,
        )
        return Compiled(lir, self.backend, self.target, self.configuration.memory, report)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - start


def prepare_job(
    graph: Graph,
    host: PluginHost,
    configuration: Configuration,
    target: str | None,
    donations: Mapping[str, int | None],
    output_names: Sequence[str] | None,
) -> Job:
    """Find the plugins and the target."""
    for domain in sorted(domains_of(graph)):
        host.activate_for(f"domain.{domain}")
    activate_pipeline(host, configuration)
    name, backend, registry = find_target(host, target or configuration.target)
    device = with_contributed_kernels(backend.target_for(configuration.options), registry, name)
    return Job(graph, configuration, device, backend, host, registry, donations, output_names)


SILENT = frozenset({"origins", "unknown_settings", "printing", "cache"})
"""What a configuration says that changes no program."""


def settled(job: Job) -> dict[str, Any]:
    """What decides how a pipeline resolves, besides the plugins: the configuration, and the target's properties."""
    config, target = job.configuration, job.target
    said = as_tables({k: v for k, v in attrs.asdict(config, recurse=False).items() if k not in SILENT})
    device = [target.name, target.alignment, target.accepts_views, target.region_limits]
    return {"configuration": said, "device": device, "properties": target.properties}


def set_up(config: Config, host: PluginHost | None) -> tuple[PluginHost, Configuration]:
    """The plugins and the configuration of a compilation.

    The configuration says which plugins take part, unless the caller brings a host, and plugins say which options a
    configuration may have: so its `[plugins]` table is read first.
    """
    if isinstance(config, Configuration):
        return host or host_for(config.plugins), config
    path, overrides = (None, config) if config is None or isinstance(config, Mapping) else (config, None)
    plugins = host or host_for(load_plugin_config(path, overrides))
    options = activate_options(plugins, path, overrides).options.values()
    return plugins, load_config(path, overrides, options=options)


def host_for(config: PluginConfig) -> PluginHost:
    """The host that a `[plugins]` table describes: the default one if it says nothing of its own."""
    if config == PluginConfig():
        return default_host()
    policy = PluginPolicy.of(
        block=config.block,
        allow=config.allow,
        enable=(*config.enable, *config.files),
        override=config.override,
        source="the configuration",
    )
    return host_with(PluginPolicy.from_environment() + policy)


def plan_options(memory: MemoryConfig) -> PlanOptions:
    from rlx_core.pipeline.lower import PlanOptions

    return PlanOptions(strategy=memory.strategy, alignment=memory.alignment)


def as_tables(value: Any) -> Any:
    """Records, however deep in tables and sequences, as tables."""
    if attrs.has(type(value)):
        value = attrs.asdict(value, recurse=False)
    if isinstance(value, Mapping):
        return {key: as_tables(each) for key, each in value.items()}
    return [as_tables(each) for each in value] if isinstance(value, list | tuple) else value


def domains_of(graph: Graph) -> set[str]:
    """The domains of all ops, nested graphs included."""
    found = {node.op.name.partition(".")[0] for node in graph.nodes}
    return found.union(*(domains_of(g) for node in graph.nodes for g in nested_graphs(node.op).values()))

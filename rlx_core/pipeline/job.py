"""One compilation: its inputs, the name of the result in caches, and the passes and the plan that produce it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from attrs import evolve, field

from rlx_core import ir, pipeline
from rlx_core.errors import FormatError
from rlx_core.hooks import API_VERSION
from rlx_core.ir.fingerprint import canonical, digest_of, fingerprint
from rlx_core.ir.graph import Graph, lines_of, ops_inside
from rlx_core.ir.lir import Lir
from rlx_core.ir.provenance import Lines
from rlx_core.ir.serialize import load_plan, relocated, save
from rlx_core.pipeline.backend import Backend, Target
from rlx_core.pipeline.compiled import CompiledProgram, plan_options
from rlx_core.pipeline.config.records import Configuration
from rlx_core.pipeline.contributed import HostOps
from rlx_core.pipeline.events import Events
from rlx_core.pipeline.report import CompilationReport
from rlx_core.plugins import PluginHost, Registry, package_of, stamp_of
from rlx_core.system.records import frozen

if TYPE_CHECKING:  # imported where something has to be compiled; a program from the cache needs none of it
    from rlx_core.passes.engine.base import Conversion
    from rlx_core.passes.engine.fusion_report import FusionReport
    from rlx_core.passes.engine.runner import PassRun
    from rlx_core.pipeline.dispatch import DispatchReport
    from rlx_core.pipeline.plan import CompilationPlan


@frozen(eq=False)
class Job:
    """One compilation: all inputs that determine its result.

    Attributes:
        graph: The program as it was given.
        configuration: Its configuration.
        target: The device with all contributed kernels.
        backend: Its compiler.
        registry: The active plugins.
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
    def plan(self) -> CompilationPlan:
        """The resolved pipeline; not needed for a result from a cache."""
        return pipeline.plan.resolve_plan(self.configuration, self.registry, self.target)

    @cached_property
    def packages(self) -> frozenset[str]:
        """The packages of the program's ops: these contain the decompositions, whether a plugin offers them or not."""
        return frozenset(package_of(type(op)) for op in ops_inside(self.graph))

    @cached_property
    def lines(self) -> Lines:
        """The source line of each node."""
        return tuple(lines_of(self.graph))

    @cached_property
    def has_nameless_ops(self) -> bool:
        """Whether the code of an op has no stamp."""
        return stamp_of(self.packages) is None

    @cached_property
    def stamp(self) -> str | None:
        """Return the hash of all code that affects the result; `None` where some of it has no stamp."""
        return self.host.stamp(self.packages)

    @cached_property
    def key(self) -> str:
        """Hex digest of all of it: the name of the result in caches.

        The resolved pipeline follows from the configuration and the plugins. Only where plugins have no stamp is
        it resolved for the key.
        """
        if self.stamp is None:
            resolved = {"plan": self.plan.hash}
        else:
            resolved = {"plugins": self.stamp, "settled": settled(self.configuration, self.target)}
        return fingerprint(
            self.graph,
            context={
                "rlx": API_VERSION,
                "numpy": np.__version__,  # it folds constants
                "backend": self.backend_digest,
                "donations": self.donations,
                "outputs": list(self.output_names or ()),
                **resolved,
            },
        )

    @property
    def backend_digest(self) -> str:
        """Return the hash of the backend; the interpreter belongs to the core, whose version is in the key."""
        if self.target.name not in self.registry.backends:
            return self.target.name
        return self.registry.digest("backends", self.target.name)

    def compile(self) -> CompiledProgram:
        """All passes, the split of parameter work, the plan."""
        from rlx_core.passes import engine  # here, because a program from a cache runs no pass

        with self.timed("pipeline"):
            plan = self.plan
        with self.timed("kernels"):  # or the first pass that asks the target would seem to take as long as its import
            for op in {type(node.op) for node in self.graph.nodes}:
                self.target.kernels.load(op)
            for ops in pipeline.deferred.made_ops((p.record for p in plan.passes), self.graph):
                engine.fusion.claims(plan.context, ops)  # as the pass will: this imports the kernels
        with self.timed("passes"):
            run = plan.run(self.graph, pipeline.showing.watch_for(self.configuration.printing, self.events))
        fusion = engine.fusion_report.fusion_report(self.graph, run, plan.imported_passes)
        if self.configuration.fusion.assert_clean:
            engine.fusion_report.assert_fusion_clean(fusion, self.configuration.fusion.allowed_misses)
        with self.timed("plan"):
            prepared = pipeline.planning.prepare.split_prepare(run.graph, self.target, pinned=tuple(self.donations))
            lir = pipeline.planning.planner.make_lir(
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
        if self.configuration.printing.ir_dump is not None:
            pipeline.showing.dump(Path(self.configuration.printing.ir_dump), self.graph, run, lir)
        stages = {"HIR nodes": len(self.graph)} if ir.hir.has_blocks(self.graph) else {}
        stages |= {"MIR nodes": len(run.graph)}
        dispatch = run.notes["dispatch"]
        return self.finished(lir, stages, run.passes, lambda: dispatch, fusion, run.conversions)

    def stored(self, compiled: CompiledProgram) -> bytes | None:
        """Return the bytes of a compiled program, from which another process can restore it.

        `None` where tables for the target could not be used: once they can, the program is another one. And where it calls
        functions of this process.
        """
        if (
            not compiled.lir.graph.is_storable
            or self.target.kernels.has_failures
            or any(kind in ("kernels", "legalizations") for kind, _ in self.registry.left_out)
        ):
            return None
        return save(ir.module.Module.of_lir(compiled.lir), self.lines)

    def restore(self, data: bytes) -> CompiledProgram:
        """The compiled program from its bytes; any fault in them raises.

        The plan was verified before it was stored, and its digest proves that it is unchanged.
        """
        with self.timed("read"):
            lir = load_plan(data, HostOps(self.host), self.lines)
            if lir.fingerprint != self.key:
                raise FormatError(f"cache: the entry is not program {self.key[:12]}")
        return self.finished(lir, {"MIR nodes": len(lir.graph)}, (), lambda: self.survey(lir))

    def located(self, program: CompiledProgram) -> CompiledProgram:
        """A compiled program that may have been made for an equal one from other lines, with the lines of this one."""
        if program.lines == self.lines:
            return program
        lir = relocated(program.lir, program.lines, self.lines, HostOps(self.host))
        report = evolve(program.report, lir=lir, survey=lambda: self.survey(lir))
        return evolve(program, lir=lir, lines=self.lines, report=report)

    def survey(self, lir: Lir) -> DispatchReport:
        """Return the dispatch of each op of a program from the cache."""
        dispatcher = self.plan.dispatcher
        assert dispatcher is not None, "a job has a target"
        rows, _ = pipeline.legalize.survey(lir.graph, dispatcher)
        return pipeline.dispatch.DispatchReport(self.target.name, tuple(rows))

    def finished(
        self,
        lir: Lir,
        stages: Mapping[str, int],
        passes: tuple[PassRun, ...],
        dispatch: Callable[[], DispatchReport],
        fusion: FusionReport | None = None,
        conversions: tuple[Conversion, ...] | None = None,
    ) -> CompiledProgram:
        report = CompilationReport(
            self.graph.name,
            self.target.name,
            {**stages, "LIR steps": len(lir.steps)},
            passes,
            dispatch,
            lir,
            seconds=self.seconds,
            fusion=fusion,
            conversions=conversions,
            device=self.target,
            left_out=self.registry.left_out,
        )
        return CompiledProgram(lir, self.backend, self.target, self.configuration.memory, report, lines=self.lines)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        self.events.phase.now = part
        yield
        self.seconds[part] = time.perf_counter() - start


SILENT = frozenset({"origins", "unknown_settings", "printing", "cache", "budget"})
"""Sections of a configuration that do not affect the program."""


def settled(configuration: Configuration, target: Target) -> str:
    """Return the digest of the inputs of pipeline resolution except the plugins: configuration and properties of the target."""
    device = [target.name, target.alignment, target.accepts_views, target.region_limits, dict(target.properties)]
    for known, known_device, cached in _latest:
        if known is configuration and known_device == device:
            return cached
    settings = as_tables({k: v for k, v in attrs.asdict(configuration, recurse=False).items() if k not in SILENT})
    digest = digest_of(canonical({"configuration": settings, "device": device}))
    _latest[:] = [(configuration, device, digest)]
    return digest


_latest: list[tuple[Configuration, list[Any], str]] = []


def as_tables(value: Any) -> Any:
    """Records, however deep in tables and sequences, as tables."""
    if attrs.has(type(value)):
        value = attrs.asdict(value, recurse=False)
    if isinstance(value, Mapping):
        return {key: as_tables(each) for key, each in value.items()}
    return [as_tables(each) for each in value] if isinstance(value, list | tuple) else value

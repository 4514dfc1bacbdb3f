"""The road from a graph to something that runs, in the order in which it happens.

configure → find plugins and target → resolve the plan → passes → split off work on parameters → schedule and plan memory →
the backend's own compiler. Everything that was decided on the way is in the `Report`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import evolve, field, frozen

from rlx_core.errors import DeviceError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.fingerprint import fingerprint
from rlx_core.ir.graph import Graph, nested_graphs
from rlx_core.ir.hir import has_blocks
from rlx_core.ir.lir import Lir
from rlx_core.ir.module import Stage
from rlx_core.ir.verify import check
from rlx_core.passes.runner import Watch
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_core.pipeline.config import Configuration
from rlx_core.pipeline.config_reading import load_config
from rlx_core.pipeline.dynamic import specialize
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.lower import PlanOptions, make_lir
from rlx_core.pipeline.plan import Plan, resolve_plan
from rlx_core.pipeline.prepare import split_prepare
from rlx_core.pipeline.report import Report
from rlx_core.plugins import PluginHost, Registry, default_host

__all__ = ["Compiled", "Config", "compile_graph", "find_target"]

Config = Configuration | Mapping[str, Any] | str | os.PathLike[str] | None
"""How a configuration may be given: itself, a table, the path of a file, or nothing (the nearest file)."""


@frozen(eq=False)
class Compiled:
    """A compiled program: one that can run, or a template that becomes one when its sizes are bound."""

    lir: Lir
    backend: Backend
    target: Target
    options: PlanOptions
    report: Report

    @property
    def is_template(self) -> bool:
        """Whether sizes are still unknown."""
        return bool(self.lir.graph.symbols)

    def specialize(self, binding: DimBinding) -> Lir:
        """The planned program for one binding of the sizes."""
        return specialize(self.lir, binding, self.target, options=self.options) if self.is_template else self.lir

    def program_for(self, lir: Lir) -> Program:
        """What the backend makes of a planned program."""
        return self.backend.compile(lir, lir.options)

    def report_for(self, lir: Lir) -> Report:
        """The report with the memory plan of a specialised program."""
        return evolve(self.report, lir=lir)


def compile_graph(
    graph: Graph,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    donations: Mapping[str, int | None] | None = None,
    output_names: Sequence[str] | None = None,
) -> Compiled:
    """Compile a graph, HIR or MIR.

    Args:
        graph: The program; it is not consumed.
        target: The device; by default what the configuration says, else the preferred one that is available.
        config: The configuration; see `Config`.
        host: The plugins to use; everything installed by default.
        donations: Inputs whose arrays the program may overwrite, each with the output that is its next value.
        output_names: What the outputs are called.

    Raises:
        ConfigError, PassOrderError: The configuration is wrong.
        DeviceError, DeviceUnavailableError: The target is not known, or cannot be used here.
        LegalizeError: The target cannot run some nodes, whatever they are rewritten to.
    """
    clock = Clock()
    with clock.part("configure"):
        configuration = configured(config)
        plugins = host or default_host()
        for domain in sorted(domains_of(graph)):
            plugins.activate_for(f"domain.{domain}")
        name, backend, registry = find_target(plugins, target or configuration.target)
        device = with_contributed_kernels(backend.target, registry, name)
        plan = resolve_plan(configuration, registry, device)
    with clock.part("passes"):
        run = plan.run(graph, Watch(check=check_stage))
    with clock.part("plan"):
        prepared = split_prepare(run.graph, device, pinned=tuple(donations or {}))
        options = PlanOptions(strategy=configuration.memory.strategy, alignment=configuration.memory.alignment)
        lir = make_lir(
            prepared.graph,
            device,
            output_names=output_names,
            donations=donations,
            prepare=prepared.prepare,
            options=options,
            resolved=plan.summary,
            fingerprint=program_fingerprint(prepared.graph, plan, device),
        )
    stages = {"HIR nodes": len(graph)} if has_blocks(graph) else {}
    stages |= {"MIR nodes": len(run.graph), "LIR steps": len(lir.steps)}
    dispatch = run.notes["dispatch"]
    report = Report(
        graph.name, name, stages, run.passes, dispatch, lir, plan.hash,
        seconds=clock.seconds, prepared_nbytes=prepared.nbytes,
    )  # fmt: skip
    return Compiled(lir, backend, device, options, report)


def check_stage(graph: Graph, stage: str) -> None:
    """Require that a graph obeys the rules of the stage it is at; the verifier that runs after every pass."""
    check(graph, Stage.HIR if stage == "hir" and has_blocks(graph) else Stage.MIR)


def configured(config: Config) -> Configuration:
    """A configuration from any of the forms it may be given in."""
    if isinstance(config, Configuration):
        return config
    if config is None or isinstance(config, Mapping):
        return load_config(overrides=config)
    return load_config(path=config)


def domains_of(graph: Graph) -> set[str]:
    """The domains of all ops, nested graphs included."""
    found = {node.op.name.partition(".")[0] for node in graph.nodes}
    return found.union(*(domains_of(g) for node in graph.nodes for g in nested_graphs(node.op).values()))


def find_target(host: PluginHost, wanted: str | None) -> tuple[str, Backend, Registry]:
    """The backend of a target, and the registry with everybody who extends it.

    Raises:
        DeviceError, DeviceUnavailableError: Nothing provides the target, or its plugin cannot be used here.
    """
    if wanted is None:
        registry = host.activate_for("target")
        wanted = preferred_target(registry if registry.backends else host.activate_all())
    backend = host.load("backends", wanted)
    registry = host.activate_for_compile(wanted)
    return wanted, backend() if isinstance(backend, type) else backend, registry


def preferred_target(registry: Registry) -> str:
    """The available target of the highest priority; among equals the first by name.

    Raises:
        DeviceError: No backend is installed.
    """
    if not registry.backends:
        raise DeviceError("target: no backend is installed", hint="pip install rlx-cpu; `rlx doctor` says more")
    return min(registry.backends.values(), key=lambda spec: (-spec.priority, spec.name)).name


def with_contributed_kernels(target: Target, registry: Registry, name: str) -> Target:
    """The target with the kernels that other plugins bring for it, in a table of its own."""
    tables: Iterable[KernelTable] = (registry.load("kernels", spec.name) for spec in registry.kernels_for(name))
    contributed = list(tables)
    if not contributed:
        return target
    table = KernelTable(name)
    for each in (target.kernels, *contributed):
        table.merge(each)
    return evolve(target, kernels=table)


def program_fingerprint(graph: Graph, plan: Plan, target: Target) -> str:
    """Everything that can change what the program computes, as a hex digest."""
    return fingerprint(graph, context={"plan": plan.hash, "target": target.name, **target.properties})


@frozen
class Clock:
    """How long each part took."""

    seconds: dict[str, float] = field(factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start

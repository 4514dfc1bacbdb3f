"""The path from a graph to something that runs, in the order in which it happens.

configure → find plugins and target → resolve the plan → passes → split off work on parameters → schedule and plan memory →
the backend's own compiler. Everything that was decided on the way is in the `Report`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from attrs import evolve

from rlx_core import pipeline
from rlx_core.errors import Fact
from rlx_core.errors.contained import contained
from rlx_core.errors.lacks import typed_lacks
from rlx_core.ir.graph import Graph, leaf_name, nested_graphs
from rlx_core.ir.lir import Lir
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.compiled import CompiledProgram, ProgramCache
from rlx_core.pipeline.config.records import Configuration, DispatchConfig
from rlx_core.pipeline.job import Job
from rlx_core.pipeline.set_up import Config, activate_pipeline, set_up
from rlx_core.pipeline.targets import find_target, with_contributed_kernels
from rlx_core.plugins import PluginHost
from rlx_core.system.budget import CountedWork, working
from rlx_core.system.collecting import collecting_seldom
from rlx_core.system.floating import in_standard_modes
from rlx_core.system.locks import forks_wait
from rlx_core.system.progress import progress

__all__ = ["Config", "compile_graph", "prepare_job", "set_up"]


@typed_lacks("compile")
@in_standard_modes
@forks_wait
def compile_graph(
    graph: Graph,
    *,
    target: str | None = None,
    config: Config = None,
    host: PluginHost | None = None,
    donations: Mapping[str, int | None] | None = None,
    output_names: Sequence[str] | None = None,
    cache: Callable[[Configuration], ProgramCache] | None = None,
) -> CompiledProgram:
    """Compile a graph, HIR or MIR.

    Args:
        graph: The program; it is not consumed.
        target: The device; by default the configured one, else the preferred one that is available.
        config: The configuration; see `Config`.
        host: The plugins to use; everything installed by default.
        donations: Inputs whose arrays the program may overwrite, each with the output that is its next value.
        output_names: Names of the outputs.
        cache: Returns the cache to look up and to fill, for a configuration.

    Raises:
        ConfigError, PassOrderError: The configuration is wrong.
        DeviceError, DeviceUnavailableError: The target is not known, or cannot be used here.
        LegalizeError: The target cannot run some nodes, whatever they are rewritten to.
        BudgetError: The program causes more work than the configuration allows.
    """
    start = time.perf_counter()
    plugins, configuration = set_up(config, host)
    task = f"compiling {graph.name}"
    with working(configuration.budget, task) as work:
        work.expect_nodes(graph.node_count, f"graph {graph.name}")
        job = prepare_job(graph, plugins, configuration, target, dict(donations or {}), output_names)
        job.seconds["configure"] = time.perf_counter() - start
        job.events.tell("compile-start", key=job.key)
        with collecting_seldom(), progress(f"{task} for {job.target.name}", job.events.phase):
            compiled, source = find_or_compile(job, None if configuration.printing.shows_passes else cache)
        expect_parameters(compiled.lir, work)
    job.events.tell("compile-end", key=job.key, source=source, seconds=time.perf_counter() - start)
    report = evolve(compiled.report, name=graph.name, cache=source)
    result = evolve(compiled, report=report, sources=sources_of(graph))
    if configuration.printing.shows_results:
        pipeline.showing.show(result, configuration.printing)
    return result


def expect_parameters(lir: Lir, work: CountedWork) -> None:
    """Require that a program's parameters have no more bytes than its budget allows; sizes with symbols are not known yet.

    Raises:
        BudgetError: They have, or a value has that is computed of parameters alone.
    """
    work.expect_parameters(sum(map(static_nbytes, lir.graph.param_types.values())), "parameters")
    for node in () if lir.prepare is None else lir.prepare.nodes:
        where = Fact("node", node.label, node.origin.source)
        for t in node.types:
            work.expect_parameters(
                static_nbytes(t), f"{node.op.title}, computed of parameters alone, has a value", where
            )


def static_nbytes(t: TensorType) -> int:
    return t.static_nbytes if t.is_static else 0


def find_or_compile(
    job: Job, cache: Callable[[Configuration], ProgramCache] | None
) -> tuple[CompiledProgram, Literal["compiled", "memory", "disk"]]:
    """The result of a job, and where it came from; a new one is kept in the cache.

    Programs with ops from a lone file or a notebook are not cached: the ops may change before the next run. Programs that
    other plugins without a stamp affect are cached for this process only.
    """
    if cache is None or job.has_nameless_ops:
        return job.compile(), "compiled"
    source: Literal["compiled", "memory", "disk"] = "memory"
    programs = cache(job.configuration)

    def compile_now() -> CompiledProgram:
        nonlocal source
        source = "compiled"
        job.events.tell("cache-miss", key=job.key)
        job.backend.expect(job.configuration.options, programs.objects)
        return job.compile()

    def read(data: bytes) -> CompiledProgram:
        nonlocal source
        source = "disk"
        return job.restore(data)

    if job.stamp is None:
        compiled = programs.get_or_compile(job.key, compile_now)
    else:
        compiled = programs.get_or_compile(job.key, compile_now, to_bytes=job.stored, from_bytes=read)
    if source != "compiled":
        job.events.tell("cache-hit", key=job.key, source=source)
    return evolve(job.located(compiled), objects=programs.objects), source


def sources_of(graph: Graph) -> dict[str, Source | None]:
    """Return the source line where the user made each input and parameter."""
    return {leaf_name(v): v.node.origin.source for v in (*graph.inputs, *graph.params)}


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
    if configuration.dispatch != DispatchConfig() or configuration.precision.keep:
        from rlx_core.pipeline.config.words import check_words  # here, because few configurations name ops

        check_words(configuration, host, graph)
    name, backend, registry = find_target(host, configuration.target if target is None else target)
    with contained("backends", name, "describing the target"):
        described = backend.target_for(configuration.options)
        if not isinstance(described, Target):
            raise TypeError(f"it returned {type(described).__name__}, not a Target")
    device = with_contributed_kernels(described, registry, name)
    device = evolve(device, allow_host=configuration.dispatch.allow_host)
    return Job(graph, configuration, device, backend, host, registry, donations, output_names)


def domains_of(graph: Graph) -> set[str]:
    """The domains of all ops, nested graphs included."""
    domains = {node.op.name.partition(".")[0] for node in graph.nodes}
    return domains.union(*(domains_of(g) for node in graph.nodes for g in nested_graphs(node.op).values()))

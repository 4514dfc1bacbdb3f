"""What plugins bring takes part in a compilation, whoever else is active."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.contributions import BackendSpec, KernelSpec, PassSpec, PipelineSpec
from rlx_core.errors import PluginError
from rlx_core.hooks import hookimpl
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op
from rlx_core.ops.activation import exp
from rlx_core.passes.engine.base import Pass, Result, define_pass
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_core.pipeline.compile import compile_graph
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.targets import find_target
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy
from rlx_core.runtime.cache import CompileCache
from rlx_core.runtime.executable import Executable

X = np.float32([0, 1])
GRAPH = rlx.trace(lambda x: rlx.exp(x) + 1.0, X)


class Stepwise(Program):
    """Calls the kernel of each step by name, on arrays of its own."""

    def __init__(self, lir, kernels):
        self.lir, self.kernels = lir, kernels

    def bind(self, params):
        self.params = dict(params)

    def clone(self):
        return self

    def run(self, inputs):
        results = interpret(self.lir.graph, dict(zip(self.lir.graph.input_types, inputs, strict=True)))
        for step in self.lir.steps:
            self.kernels.get(step.kernel).run(step.node.op, out=None, workspace=None)
        return list(results)


def backend(name: str) -> type[Backend]:
    table = KernelTable(name, plugin=name)

    @table.register(Op)
    def anything(op, *operands, out, workspace):
        pass

    class Device(Backend):
        target = Target(name, table)

        def compile(self, lir, target, options):
            return Stepwise(lir, target.kernels)

    return Device


def entry(domain: str, when: tuple[str, ...] = (), **hooks: object) -> PluginEntry:
    plugin = SimpleNamespace(**{f"rlx_{name}": hookimpl(lambda made=made: made) for name, made in hooks.items()})
    return PluginEntry(domain, plugin=plugin, distribution=f"{domain}-rlx", version="1.0", when=when)


def device(name: str, when: tuple[str, ...] = (), priority: int = 0) -> PluginEntry:
    return entry(name, when, backends=[BackendSpec(name, backend(name), priority=priority)])


def host_of(*entries: PluginEntry) -> PluginHost:
    return PluginHost(entries, policy=PluginPolicy())


@pytest.mark.parametrize("active", [False, True])
def test_the_default_target_does_not_depend_on_who_is_active(active: bool) -> None:
    host = host_of(device("zinc", when=("target",)), device("amber"), device("beryl", priority=5))
    if active:
        host.activate_all()

    assert find_target(host, None)[0] == "zinc"


def test_where_nobody_offers_a_default_the_highest_priority_is_taken() -> None:
    assert find_target(host_of(device("amber"), device("beryl", priority=5)), None)[0] == "beryl"


def contributed(domain: str, ran: list[str], priority: int) -> PluginEntry:
    table = KernelTable("zinc", plugin=domain)

    @table.register(exp.op, priority=priority, name=f"{domain}_exp")
    def run(op, *operands, out, workspace):
        ran.append(domain)

    return entry(domain, kernels=[KernelSpec("zinc", table)])


def test_kernels_of_other_plugins_are_chosen_and_run() -> None:
    """Two plugins hand over their tables as objects: each is a record of its own, and the program finds both by name."""
    ran: list[str] = []
    host = host_of(device("zinc"), contributed("amber", ran, priority=1), contributed("beryl", ran, priority=2))
    host.activate_all()
    compiled = compile_graph(GRAPH, target="zinc", host=host)

    (found,) = Executable(compiled).run({"x": X})

    np.testing.assert_allclose(found, np.exp(X) + 1, rtol=1e-6)
    assert ran == ["beryl"]
    assert ("rlx.exp", "beryl_exp", "beryl") in compiled.report.kernels
    assert len(host.registry().kernels_for("zinc")) == 2


@define_pass("look", domain="amber")
class Look(Pass):
    def run(self, graph, context):
        return Result(graph, Result.unchanged(graph).values, {"looked": 1})


def test_a_contributed_pipeline_activates_the_plugins_whose_passes_it_lists() -> None:
    listed = PipelineSpec("beryl.quick", {"hir": ["lower-hir"], "mir": ["amber.look", "legalize"]})
    host = host_of(
        device("zinc"), entry("beryl", pipelines=[listed]), entry("amber", passes=[PassSpec("amber.look", Look)])
    )

    compiled = compile_graph(GRAPH, target="zinc", host=host, config={"use": "beryl.quick"})

    assert [p.name for p in compiled.report.passes if p.counts.get("looked")] == ["amber.look"]


def test_a_pass_of_a_plugin_that_failed_is_refused_with_its_cause() -> None:
    def broken() -> object:
        raise RuntimeError("no licence")

    plugin = SimpleNamespace(rlx_passes=hookimpl(broken))
    failing = PluginEntry("amber", plugin=plugin, distribution="amber-rlx", version="1.0")
    config = {"use": "mine", "pipeline": {"mine": {"mir": ["amber.look", "legalize"]}}}

    with pytest.raises(PluginError, match=r"amber\.look: its plugin amber failed") as caught:
        compile_graph(GRAPH, target="zinc", host=host_of(device("zinc"), failing), config=config)

    assert "no licence" in str(caught.value)


def test_passes_that_are_to_be_shown_are_run_though_the_result_is_cached(capsys: pytest.CaptureFixture[str]) -> None:
    cache, host = CompileCache(), host_of(device("zinc"))
    config = {"printing": {"after": ["legalize"]}}
    for _ in range(2):
        compile_graph(GRAPH, target="zinc", host=host, config=config, cache=lambda _: cache)

        assert "== after rlx.legalize\ngraph" in capsys.readouterr().out

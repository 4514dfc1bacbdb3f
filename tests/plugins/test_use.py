"""Contributions that raise when they are used: the next row is taken, or the error names the plugin and the remedy."""

from __future__ import annotations

import json
import signal
import warnings

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.cli.checking import checks
from rlx_core.contributions import KernelSpec, PassSpec, RuleSpec
from rlx_core.errors import PluginError, VerifyError
from rlx_core.ir.rewrite import rebuild
from rlx_core.passes.engine.base import Pass, Result, define_pass
from rlx_core.pipeline.kernels import Condition, KernelTable
from rlx_core.plugins import journal
from rlx_core.plugins.journal import UseFailure, recorded, remember

from .guests import X, host_with, plugin_of


def failing_table(kind: str):
    if kind == "emitter":
        native = pytest.importorskip("rlx_cpu.emitters").NativeTable()

        @native.register(rlx.exp.op, dtypes="f32", priority=10)
        def mine(module, node, layout, isa, name):
            raise KeyError("mine")

        return native
    table = KernelTable("cpu")
    when = Condition("a whim", lambda node: {}["mine"]) if kind == "condition" else ()

    @table.register(rlx.exp.op, dtypes="f32", priority=10, when=when)
    def mine(op, x, *, out, workspace):
        raise KeyError("mine")

    return table


@pytest.mark.parametrize("kind", ["emitter", "condition"])
@pytest.mark.parametrize("shape", ["f32[2]", "f32[n]"])
def test_a_kernel_that_raises_for_another_plugins_op_gives_way_to_the_next_row(kind, shape):
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", failing_table(kind))])))

    def result():
        return rlx.compile(rlx.exp, rlx.spec(shape), target="cpu", host=host)(X)

    with pytest.warns(RuntimeWarning, match=r"of acme \(acme-rlx 1\.0\): .* raised KeyError: 'mine'; it is left out"):
        found = result()
    np.testing.assert_allclose(found, np.exp(X), rtol=1e-5)


def test_a_kernel_that_raises_in_a_run_names_its_plugin_and_the_remedy():
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", failing_table("function"))])))
    with pytest.raises(PluginError, match=r"acme \(acme-rlx 1\.0\)") as caught:
        rlx.jit(rlx.exp, target="cpu", host=host, config={"options": {"cpu.tier": "numpy"}})(X)
    assert isinstance(caught.value.__cause__, KeyError)
    assert 'plugins.block = ["acme"]' in caught.value.hint
    assert "a run of rlx.exp raised KeyError: 'mine'" in caught.value.message


@define_pass("signature", domain="acme")
class OtherSignature(Pass):
    """It returns a program with another output."""

    def run(self, graph, context):
        made, values = rebuild(graph, lambda node, operands: None)
        from rlx_core.ir.graph import Graph

        return Result(Graph(made.name, made.nodes, (made.inputs[0],), tuple(made.guards)), values)


@define_pass("raising", domain="acme")
class Raising(Pass):
    """It raises."""

    def run(self, graph, context):
        raise ZeroDivisionError("by nobody")


def test_a_pass_that_changes_the_signature_is_refused_by_name():
    host = host_with(plugin_of(("passes", [PassSpec("acme.signature", OtherSignature, after=["rlx.canonicalize"])])))
    with pytest.raises(VerifyError, match=r"acme\.signature: the pass changed the outputs"):
        rlx.jit(lambda x: rlx.sum(x), host=host, config={"include": ["acme.signature"]})(X)


def test_a_pass_that_raises_is_named_with_its_plugin():
    host = host_with(plugin_of(("passes", [PassSpec("acme.raising", Raising, after=["rlx.canonicalize"])])))
    with pytest.raises(PluginError, match=r"acme\.raising: the pass raised ZeroDivisionError: by nobody") as caught:
        rlx.jit(lambda x: rlx.sum(x), host=host, config={"include": ["acme.raising"]})(X)
    assert "RLX_PLUGINS_BLOCK=acme" in caught.value.hint


def test_a_contributed_rule_that_raises_gives_way_to_the_ops_own():
    def rule(op, g, x, *, y):
        raise IndexError("there is no third")

    host = host_with(plugin_of(("rules", [RuleSpec("rlx.exp", "vjp", rule)])))
    gradient = rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.exp(x))), host=host)
    with pytest.warns(RuntimeWarning, match=r"rule rlx\.exp:vjp of acme .*IndexError: there is no third"):
        np.testing.assert_allclose(gradient(X), np.exp(X), rtol=1e-5)


def test_failures_of_installed_plugins_are_kept_for_doctor(tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    failure = UseFailure("acme", "acme-rlx", "1.0", "kernel mine", "the code of rlx.exp raised KeyError: 'mine'")
    remember(failure, is_installed=True)
    stored = [json.loads(line) for line in journal.journal_file().read_text().splitlines()]
    assert stored[-1]["record"] == "kernel mine"
    assert failure in recorded([("acme-rlx", "1.0")])
    assert recorded([("acme-rlx", "1.1")]) == []

    host = host_with(plugin_of())
    said = [f.found for f in checks.failures_at_use(host)]
    assert any("kernel mine, of acme-rlx 1.0, failed at use" in each for each in said)
    (tmp_path / "cache" / "plugin-failures.jsonl").write_text("not ours\n{}\n")
    monkeypatch.setattr(journal, "_known", {})
    assert recorded([("acme-rlx", "1.0")]) == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no interval timers")
def test_an_exception_of_a_signal_handler_is_nobodys_fault():
    class Late(Exception):
        pass

    def handler(number, frame):
        raise Late

    @define_pass("slow", domain="acme")
    class Slow(Pass):
        def run(self, graph, context):
            signal.raise_signal(signal.SIGALRM)
            return Result.unchanged(graph)

    host = host_with(plugin_of(("passes", [PassSpec("acme.slow", Slow, after=["rlx.canonicalize"])])))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with warnings.catch_warnings(), pytest.raises(Late):
            rlx.jit(lambda x: rlx.sum(x), host=host, config={"include": ["acme.slow"]})(X)
    finally:
        signal.signal(signal.SIGALRM, before)

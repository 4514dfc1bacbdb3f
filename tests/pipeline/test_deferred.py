"""Passes that name their ops are imported for programs that have one, and leave all others as they are."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.op import OpModules
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.control.conditional import If
from rlx_core.passes.engine.base import LOWERED, Context, Pass, Result, define_pass
from rlx_core.pipeline.deferred import DeferredPass
from rlx_core.plugins import default_host
from rlx_core.testing.compositions import FIRST_TYPE, compositions, generated, single_ops

REGISTRY = default_host().registry()
DECLARED = {name: record.ops for name, record in REGISTRY.passes.items() if record.ops}
X = spec("f32[3]")


@cache
def tried_programs() -> list[Graph]:
    composed = [graph for each in compositions() if (graph := each.graph(FIRST_TYPE)) is not None]
    return [*composed, *(graph for _, graph, _ in (*generated(), *single_ops()))]


@define_pass("tagged", domain="acme")
class Tagged(Pass):
    def run(self, graph: Graph, context: Context) -> Result:
        return Result(graph, graph.identity, {"tagged": 1})


def exponential() -> Graph:
    b = Builder()
    return b.finish([exp(b.input("x", X))])


def chosen() -> Graph:
    b = Builder()
    pred, x = b.input("pred", spec("bool[]")), b.input("x", X)
    return b.finish([If(exponential(), exponential())(pred, x)])


def total() -> Graph:
    b = Builder()
    return b.finish([add(b.input("x", X), b.input("y", X))])


@pytest.mark.parametrize(("program", "is_run"), [(exponential, True), (chosen, True), (total, False)])
def test_a_deferred_pass_runs_where_one_of_its_ops_is(program, is_run: bool) -> None:
    deferred = DeferredPass("acme.tagged", frozenset({"rlx.exp"}), Tagged)
    assert dict(deferred.run(program(), Context()).counts) == ({"tagged": 1} if is_run else {})
    assert deferred.is_imported is is_run


@pytest.mark.medium
@pytest.mark.parametrize("name", DECLARED)
def test_a_pass_that_names_its_ops_changes_no_other_program(name: str) -> None:
    ops, made = frozenset(DECLARED[name]), REGISTRY.load("passes", name)()
    without = [graph for graph in tried_programs() if ops.isdisjoint(graph.op_names)]
    assert len(without) > 100
    for graph in without:
        result = made.run(graph, Context())
        assert result.graph is graph
        assert not result.misses


@pytest.mark.parametrize("name", DECLARED)
def test_a_pass_that_names_its_ops_requires_no_more_than_lowered_programs(name: str) -> None:
    record = REGISTRY.load("passes", name)
    assert record.requires <= {LOWERED}
    assert not record.ensures | record.invalidates
    assert not {*record.before, *record.after}


@pytest.mark.medium
def test_a_program_imports_no_pass_and_no_kernel_of_ops_that_it_has_not() -> None:
    code = """
import sys
import numpy as np
import rlx_core as rlx
x = np.ones((2, 3), np.float32)
rlx.jit(lambda x: x + 1, config={"cache": {"disk": False}})(x)
names = ("rlx_core.passes.recognise.softmax", "rlx_core.ops.fourier.fourier", "rlx_core.ops.attention")
print([name in sys.modules for name in names])
rlx.jit(lambda x: rlx.exp(x) / rlx.sum(rlx.exp(x), axis=1, keepdims=True), config={"cache": {"disk": False}})(x)
print("rlx_core.passes.recognise.softmax" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["[False, False, False]", "True"]


def test_modules_are_imported_for_the_ops_of_their_list() -> None:
    modules = OpModules({"no_module_of_exp": "rlx.exp", "no_module_of_anything": "Op"})
    with pytest.raises(ModuleNotFoundError, match="no_module_of_exp"):
        modules.load(exp.op)
    with pytest.raises(ModuleNotFoundError, match="no_module_of_anything"):
        modules.load(add.op)

"""Programs that ask for more work than the configuration allows are refused by name, and large ones are not."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import BudgetError, ConfigError
from rlx_core.ops.call import Call
from rlx_core.passes.base import Context, Pass, Result, define_pass
from rlx_core.passes.runner import run_passes
from rlx_core.system.budget import Budget, working

F32 = rlx.spec("f32[4]")
X = np.float32([1, -2, 3, -4])


def doubled(times: int):
    """A graph that calls a graph twice that calls a graph twice…"""
    graph = rlx.trace(rlx.abs, F32)
    for _ in range(times):
        graph = rlx.trace(lambda x, body=graph: Call(body=body)(Call(body=body)(x)), F32)
    return graph


def test_graphs_that_call_each_other_twice_are_counted_and_not_inlined():
    start = time.thread_time()
    with pytest.raises(BudgetError, match="has more than 500,000 nodes") as caught:
        rlx.Session().compile(doubled(30))
    assert time.thread_time() - start < 5
    assert "budget.nodes" in str(caught.value)


def test_a_few_such_graphs_are_compiled():
    np.testing.assert_array_equal(rlx.Session().compile(doubled(4)).run({"x": X})[0], np.abs(X))


def test_nodes_that_a_pass_makes_are_counted():
    @define_pass("grow", domain="acme")
    class Grow(Pass):
        """Make a program without an end."""

        def run(self, graph, context: Context) -> Result:
            x = rlx.trace(lambda x: endless(x), F32)
            return Result.unchanged(x)

    def endless(x):
        while True:
            x = x + 1

    with (
        working(Budget(nodes=1000), "compiling main"),
        pytest.raises(BudgetError, match="more than 1,000 nodes") as caught,
    ):
        run_passes([Grow()], rlx.trace(rlx.exp, F32))
    assert any(fact.label == "pass" and fact.value == "acme.grow" for fact in caught.value.facts)


def test_a_pass_that_makes_nodes_for_ever_ends_with_its_time():
    @define_pass("spin", domain="acme")
    class Spin(Pass):
        """Trace the same program without an end."""

        def run(self, graph, context: Context) -> Result:
            while True:
                rlx.trace(lambda x: rlx.exp(x) + 1, F32)

    with (
        working(Budget(seconds=0.2), "compiling main"),
        pytest.raises(BudgetError, match=r"the pass acme.spin takes longer than 0.2 s"),
    ):
        run_passes([Spin()], rlx.trace(rlx.exp, F32))


def test_a_budget_without_time_names_the_first_pass():
    with pytest.raises(BudgetError, match=r"the pass rlx\.[a-z-]+ takes longer than 1e-09 s"):
        rlx.jit(lambda x: rlx.exp(x) * 3.25, config={"budget.seconds": 1e-9, "cache.disk": False})(X)


def test_a_constant_that_is_doubled_is_folded_as_far_as_it_is_small():
    """What is larger than the option of the pass is left to the program, whose arena says how large it is."""

    def program(x):
        c = rlx.ones(1, dtype=rlx.f32)
        for _ in range(40):
            c = rlx.concat([c, c])
        return x + c[:4]

    np.testing.assert_array_equal(rlx.jit(program)(X), X + 1)


def test_the_bytes_of_all_folded_constants_are_counted():
    def program(x):
        for n in range(20):
            x = x + rlx.sum(rlx.exp(rlx.asarray(np.full(1000, n, np.float32))))
        return x

    with pytest.raises(BudgetError, match="makes constants of more than 10,000 bytes") as caught:
        rlx.jit(program, config={"budget.folded": 10_000})(X)
    assert "budget.folded" in str(caught.value)
    rlx.jit(program)(X)


def test_parameters_are_counted_before_they_are_bound():
    weights = {"w": np.ones(4, np.float32)}
    spec = rlx.spec("f32[4]")
    for _ in range(2):  # the second time from the cache
        with pytest.raises(BudgetError, match="parameters of more than 15 bytes"):
            rlx.compile(lambda w, x: w["w"] + x, weights, spec, config={"budget.parameters": 15})
        rlx.compile(lambda w, x: w["w"] + x, weights, spec, config={"budget.parameters": 16})


def test_what_is_made_of_parameters_alone_is_counted():
    """40 doublings of a weight have 4 TiB, which a bound program would compute once."""

    def program(w, x):
        c = w["w"]
        for _ in range(40):
            c = rlx.concat([c, c])
        return x + rlx.sum(c)

    with pytest.raises(BudgetError, match="computed of parameters alone, has a value of more than") as caught:
        rlx.compile(program, {"w": np.ones(1, np.float32)}, F32)
    where = next(fact for fact in caught.value.facts if fact.label == "node")
    assert str(where.value).startswith("%")


def test_a_loop_of_a_billion_steps_is_a_program_like_any_other():
    """It is compiled at once, whatever runs it; its time is that of the run, which Ctrl-C ends."""

    def program(x):
        last, _ = rlx.scan(lambda c, _: (c + 1, ()), x, rlx.arange(10**9, dtype=rlx.i64))
        return last

    compiled = rlx.compile(program, F32)
    assert len(compiled.report.lir.graph) < 50


def test_variants_are_kept_up_to_the_budget():
    function = rlx.jit(lambda x: x + 1, config={"budget.variants": 3})
    for size in (1, 2, 3, 4, 1):
        np.testing.assert_array_equal(function(np.zeros(size)), np.ones(size))
    assert len(function.executables) == 3


@pytest.mark.parametrize("table", [{"nodes": 0}, {"seconds": 0.0}, {"variants": 0}, {"nodse": 1}, {"nodes": "many"}])
def test_a_budget_that_means_nothing_is_refused(table):
    with pytest.raises(ConfigError, match="budget"):
        rlx.jit(rlx.exp, config={"budget": table})(X)


def test_a_budget_is_part_of_no_program():
    """A program that was compiled under another budget is found in the cache."""
    function = lambda x: rlx.exp(x) * 7.125  # noqa: E731
    rlx.jit(function)(X)
    again = rlx.jit(function, config={"budget.nodes": 400_000})
    again(X)
    assert again.report.cache == "memory"


@pytest.mark.slow
def test_fifty_thousand_nodes_in_a_row_are_compiled():
    def program(x, count: int):
        for _ in range(count):
            x = rlx.abs(x)
        return x

    def seconds(count: int) -> float:
        graph = rlx.trace(lambda x: program(x, count), F32)
        gc.collect()
        gc.disable()
        try:
            start = time.thread_time()
            compiled = rlx.Session(config={"cache.disk": False}).compile(graph)
            took = time.thread_time() - start
        finally:
            gc.enable()
        np.testing.assert_array_equal(compiled.run({"x": X})[0], np.abs(X))
        return took

    seconds(10)
    small, large = seconds(5_000), seconds(50_000)
    assert large < 20 * small, f"5,000 nodes take {small:.1f} s, 50,000 {large:.1f} s"

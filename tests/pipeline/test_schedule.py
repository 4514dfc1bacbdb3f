"""Schedules: what runs, and in which order."""

from __future__ import annotations

import pytest

from rlx_core.ir.graph import Builder
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add, multiply, negative
from rlx_core.ops.structural import expand, sum_axes
from rlx_core.pipeline.lower import PlanOptions, make_lir
from rlx_core.pipeline.memory import live_ranges, lower_bound
from rlx_core.pipeline.schedule import schedule


@pytest.mark.parametrize("order", ["insertion", "memory"])
def test_every_operand_runs_before_its_readers(generated, order):
    for seed in range(60):
        graph, _ = generated(seed)
        done = {n for n in graph.nodes if n.is_leaf}
        for node in schedule(graph, order):
            assert all(v.node in done for v in node.present())
            done.add(node)
        assert all(v.node in done for v in graph.outputs)


def test_nodes_that_no_output_needs_do_not_run():
    builder = Builder()
    x = builder.input("x", spec("f32[4]"))
    y = add(x, 1.0)
    multiply(y, 2.0)

    assert [n.op.name for n in schedule(builder.finish([y]))] == ["rlx.add"]


def test_both_orders_run_the_same_nodes(generated):
    for seed in range(30):
        graph, _ = generated(seed)
        assert set(schedule(graph)) == set(schedule(graph, "memory"))


def test_the_memory_aware_order_reduces_what_it_made_before_making_more(fake_target):
    """Eight wide values, each summed to a scalar: in the graph's order all eight are alive at once."""
    builder = Builder()
    x = builder.input("x", spec("f32[1]"))
    wide = [expand(add(x, float(i)), (256,)) for i in range(8)]
    wide = [add(w, w) for w in wide]
    total = sum_axes(wide[0], axes=(0,))
    for w in wide[1:]:
        total = add(total, sum_axes(w, axes=(0,)))
    graph = builder.finish([total])
    target = fake_target()

    def peak(order: str) -> int:
        return lower_bound(live_ranges(make_lir(graph, target, options=PlanOptions(order=order))))

    assert peak("insertion") >= 8 * 1024
    assert peak("memory") <= 2 * 1024


def test_ties_keep_the_order_of_the_graph():
    builder = Builder()
    x = builder.input("x", spec("f32[4]"))
    graph = builder.finish([negative(x), negative(add(x, 1.0)), add(x, x)])

    assert [n.index for n in schedule(graph, "memory")] == [n.index for n in schedule(graph)]

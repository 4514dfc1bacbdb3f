"""Schedules: what runs, and in which order."""

from __future__ import annotations

import pytest

from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Builder
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add, multiply, negative
from rlx_core.ops.structural import expand, sum_axes
from rlx_core.pipeline.planning.memory import live_ranges, lower_bound
from rlx_core.pipeline.planning.planner import PlanOptions, make_lir
from rlx_core.pipeline.planning.schedule import Flow, schedule


@pytest.mark.medium
@pytest.mark.parametrize("order", ["insertion", "relief", "memory"])
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
        orders = [set(schedule(graph, order)) for order in ("insertion", "relief", "memory")]
        assert orders[0] == orders[1] == orders[2]


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


def updates(builder: Builder, *, reads_later: bool):
    """Two weights' steps at the end of the program, and what each gradient is made of in front; two results."""
    x, first, second = (builder.input(n, spec("f32[64]")) for n in ("x", "first", "second"))
    gradients = [negative(multiply(x, w)) for w in (first, second)]
    later = multiply(first, x) if reads_later else x
    steps = [add(w, g) for w, g in zip((first, second), gradients, strict=True)]
    return builder.finish([*steps, multiply(later, 2.0)]), steps


def test_what_adds_no_bytes_runs_as_soon_as_it_can():
    """A weight is stepped when its gradient is there, not at the end where the program says so."""
    graph, (first, second) = updates(Builder(), reads_later=False)
    order = list(schedule(graph))
    assert order.index(first.node) == order.index(first.node.operands[1].node) + 1
    assert order.index(first.node) < order.index(second.node.operands[1].node)
    assert list(schedule(graph, "insertion")).index(first.node) > order.index(first.node)


def test_a_step_waits_for_the_last_reader_of_the_weight_that_it_replaces():
    """Before it the weight's own bytes could not be taken over."""
    graph, (first, _) = updates(Builder(), reads_later=True)
    order = list(schedule(graph))
    reader = next(n for n in graph.uses[first.node.operands[0]] if n.index > first.node.operands[1].node.index)
    assert order.index(reader) < order.index(first.node)


def test_the_flow_of_a_template_gives_the_order_of_each_size():
    """What is read of the template is all that a schedule needs besides the bound types."""
    builder = Builder()
    x, y = builder.input("x", spec("f32[n, 8]")), builder.input("y", spec("f32[m, 8]"))
    long, wide = sum_axes(multiply(x, 2.0), (0,)), multiply(y, 3.0)
    template = builder.finish([sum_axes(negative(add(wide, long)), (0,)), add(long, 1.0)])
    flow = Flow.of(template)
    for n, m in ((1, 1), (1, 100), (100, 1), (0, 3)):
        graph, _ = bind(template, DimBinding.of(n=n, m=m))
        for order in ("insertion", "relief", "memory"):
            assert schedule(graph, order, flow) == schedule(graph, order)

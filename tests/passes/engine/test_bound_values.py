"""Which values are known once parameters are bound, and how many nodes are visited to find it."""

from __future__ import annotations

import gc

import pytest

from rlx_core.ir.graph import Builder, Node, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.passes.engine import bound_values
from rlx_core.passes.engine.bound_values import bound_nodes, is_bound


def chain(length):
    """A chain from a parameter and one from an input, in one graph."""
    builder = Builder("chain")
    with building(builder):
        x, w = builder.input("x", spec("f32[2]")), builder.param("w", spec("f32[2]"))
        values = [x, w]
        for _ in range(length):
            x, w = exp(x), exp(w)
            values += [x, w]
        return builder.finish([exp(x), exp(w)]), values


def test_one_value_is_bound_where_the_whole_graph_says_so():
    graph, values = chain(20)
    bound = bound_nodes(graph)
    assert [is_bound(value) for value in values] == [value.node in bound for value in values]


@pytest.mark.medium
@pytest.mark.parametrize("length", [1000, 4000])
def test_asking_for_every_node_of_a_chain_visits_each_once(length, monkeypatch):
    graph, values = chain(length)
    visits, present = [], Node.present
    monkeypatch.setattr(Node, "present", lambda node: visits.append(node) or present(node))
    assert sum(is_bound(value) for value in values) == length + 1
    assert len(visits) <= 3 * len(values)
    assert graph.nodes


@pytest.mark.medium
def test_what_was_found_goes_with_its_graph():
    _, values = chain(5)
    assert is_bound(values[-1])
    before = len(bound_values._known)
    del _, values
    gc.collect()
    assert len(bound_values._known) < before

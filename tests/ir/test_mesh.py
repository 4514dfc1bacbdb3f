"""Named axes: which names may be used where, and which ops of a graph are over them."""

from __future__ import annotations

import pytest

import rlx_core as rlx
from rlx_core.errors import AxisNameError
from rlx_core.ir.graph import Builder, Graph, building
from rlx_core.ir.mesh import NO_AXES, Mesh, current_mesh, expect_named_axes, in_mesh, named_axes, nodes_over
from rlx_core.ops.call import Call
from rlx_core.ops.collectives import AxisIndex, PSum

OUTER = NO_AXES.extended("vmap", "batch", 8)
BOTH = OUTER.extended("vmap", "model", rlx.symbol("n"))


def graph_of(function) -> Graph:
    builder = Builder("body")
    with building(builder):
        return builder.finish([function(builder.input("x", rlx.spec("f32[]")))])


def inside() -> Graph:
    """A sum over one axis in a graph within a graph, and a position along another."""
    body = graph_of(lambda x: PSum(("model",), (2,))(x))
    return graph_of(lambda x: Call(body)(x) * AxisIndex("batch", 8)())


def test_a_mesh_is_a_value_with_its_axes_in_order():
    assert Mesh(("batch",), (8,)) == OUTER
    assert BOTH.names == ("batch", "model")
    assert BOTH.select("psum", ["model", "batch"]) == Mesh(("model", "batch"), (rlx.symbol("n"), 8))
    assert BOTH.select("psum", ()) == NO_AXES
    assert str(BOTH) == "batch of size 8, model of size n"
    assert OUTER.names == ("batch",), "extending makes another mesh"


def test_the_current_mesh_is_that_of_the_innermost_block():
    assert current_mesh() == NO_AXES
    with in_mesh(OUTER), in_mesh(BOTH):
        assert current_mesh() == BOTH
    with pytest.raises(KeyError), in_mesh(OUTER):
        raise KeyError
    assert current_mesh() == NO_AXES


def test_names_of_an_op_are_its_own_and_those_of_the_graphs_inside():
    graph = inside()
    found = [named_axes(node.op) for node in graph.nodes]
    assert found.count(frozenset({"model"})) == 1
    assert found.count(frozenset({"batch"})) == 1
    assert [node.op.title for node in nodes_over(graph, ["model", "batch"])] == ["psum"], (
        "a position communicates nothing"
    )
    assert list(nodes_over(graph, ["batch"])) == []


def test_a_graph_may_be_over_axes_of_the_mesh_only():
    expect_named_axes(inside(), BOTH)
    with pytest.raises(AxisNameError, match="call: no axis 'model' is in scope"):
        expect_named_axes(inside(), OUTER)
    with pytest.raises(AxisNameError, match="no axis"):
        expect_named_axes(inside(), NO_AXES)

"""Rebuilding graphs: maps, names, origins and guards survive."""

import pytest

from rlx_core.ir.graph import Builder, building
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.rewrite import inline, rebuild
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, negative


def keep(node, operands):
    return None


def double_negation(node, operands):
    (x,) = operands if isinstance(node.op, negative.op) else (None,)
    return None if x is None or not isinstance(x.node.op, negative.op) else x.node.operands[0]


def test_keeping_everything_is_a_copy_with_a_map(rich):
    again, values = rebuild(rich, keep)
    assert again == rich
    assert [n.name for n in again.nodes] == [n.name for n in rich.nodes]
    assert [n.origin for n in again.nodes] == [n.origin for n in rich.nodes]
    assert values.keys() == {v for n in rich.nodes for v in n.results}
    assert all(values[a] is b for a, b in zip(rich.outputs, again.outputs, strict=True))


def test_a_replaced_node_maps_to_what_replaces_it():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with building(b):
        y = exp(negative(negative(x)), name="y")
    graph = b.finish([y])
    again, values = rebuild(graph, double_negation, by="algebra")
    assert again.find("y").node.operands[0].node is values[x].node
    assert values[y] is again.find("y")


def test_new_nodes_are_stamped_and_inherit_where_the_old_one_came_from():
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with originating(Origin(block="layer0", label="l")):
        y = exp(x)
    again, values = rebuild(b.finish([y]), lambda n, o: None if n.is_leaf else add(o[0], o[0]), by="my-pass")
    origin = values[y].node.origin
    assert (origin.block, origin.label, origin.created_by) == ("layer0", "l", "my-pass")
    assert "y = exp(x)" in repr(origin.source)
    assert len(again.nodes) == 2


def test_a_replacement_of_another_type_is_our_own_mistake():
    b = Builder()
    y = exp(b.input("x", spec("f32[2]")))
    graph = b.finish([y])
    with pytest.raises(AssertionError, match=r"f32\[2\] became f32\[\]"):
        rebuild(graph, lambda n, o: None if n.is_leaf else o[0].sum(), by="bad")


def test_inline_binds_by_name_and_keeps_unbound_leaves(rich):
    b = Builder()
    w = b.input("mine", spec("f32[64]"))
    results = inline(b, rich, {"layer.0.w": w})
    graph = b.finish(results)
    assert list(graph.input_types) == ["mine", "x", "odd name", "late"]
    assert graph.output_types == rich.output_types
    assert graph.guards == rich.guards

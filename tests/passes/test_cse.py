"""Equal computations are made once, and nothing that differs in a bit or an effect is merged."""

import numpy as np
import pytest

from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, subtract
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.engine.base import Context

X = spec("f32[4]")


@define_op(domain="test")
class Shift(Op):
    by: object = 0.0

    def infer(self, x):
        return x

    def reference(self, x):
        return x + self.by


def merged(make) -> Graph:
    b = Builder()
    x, y = b.input("x", X), b.input("y", X)
    graph = b.finish(make(x, y))
    return CommonSubexpressions().run(graph, Context()).graph


def count(graph: Graph) -> int:
    return sum(not n.is_leaf for n in graph.nodes)


def test_equal_nodes_are_merged():
    assert count(merged(lambda x, y: [exp(x), exp(x)])) == 1


def test_equality_is_transitive_through_operands():
    assert count(merged(lambda x, y: [exp(exp(x)), exp(exp(x))])) == 2


def test_commutative_operands_may_stand_in_either_order():
    assert count(merged(lambda x, y: [add(x, y), add(y, x)])) == 1


def test_other_operands_keep_their_order():
    assert count(merged(lambda x, y: [subtract(x, y), subtract(y, x)])) == 2


@pytest.mark.parametrize("kind", ["noise", "fence"])
def test_impure_ops_and_barriers_are_not_merged(kind, request):
    op = request.getfixturevalue(kind)
    assert count(merged(lambda x, y: [op(x), op(x)])) == 2


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, 1.0), (1, True), (1.0, True), ((1,), (1.0,))])
def test_attributes_that_python_calls_equal_are_told_apart(a, b):
    """Python says 0.0 == -0.0 and 1 == True; an op that adds one is not the op that adds the other."""
    assert count(merged(lambda x, y: [Shift(a)(x), Shift(b)(x)])) == 2


def test_constants_are_compared_by_bytes():
    made = merged(lambda x, y: [add(x, np.full(32, 0.0, "f4")[:4]), add(x, np.full(4, -0.0, "f4"))])
    assert count(made) == 2


def test_a_name_survives_on_the_node_that_is_left():
    graph = merged(lambda x, y: [exp(x), exp(x, name="kept")])
    assert graph.find("kept").node is graph.outputs[0].node


def test_the_value_map_leads_from_both_to_the_one():
    b = Builder()
    x = b.input("x", X)
    first, second = exp(x), exp(x)
    result = CommonSubexpressions().run(b.finish([first, second]), Context())
    assert result.values[first] is result.values[second]
    assert result.counts == {"merged": 1}


def test_a_second_run_changes_nothing():
    graph = merged(lambda x, y: [exp(x) + exp(x), exp(x)])
    assert CommonSubexpressions().run(graph, Context()).graph is graph

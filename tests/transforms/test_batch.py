"""Batching of whole graphs: where axes come from and go to, what is shared, and what is refused."""

import numpy as np
import pytest

from rlx_core.errors import AxisError, MissingRuleError, ShapeError, UnknownNameError, WrongInputCountError
from rlx_core.ir.mesh import Mesh
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.rules import Replicated
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.collectives import PSum
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import sum_axes
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.engine import Engine
from rlx_core.transforms.vjp import vjp_graph


@define_op(domain="test")
class Unbatchable(Op):
    """A primitive without a batching rule."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x + 1


@define_op(domain="test")
class Largest(Op):
    """An op whose batching rule gives one result for all examples, or what a test says."""

    has_axis: bool = False

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def batch(self, size, x, is_batched):
        return Replicated(x[0] if self.has_axis else sum_axes(x[0], axes=(0,)))


def scaled(x, w):
    return multiply(tanh(x), w)


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out_axis", [0, 1, 2, -1, -3])
def test_the_new_axis_may_be_any_axis_of_operand_and_result(graph_of, run, rng, in_axis, out_axis):
    graph = vmap_graph(graph_of(scaled, x="f64[3, 2]", w="f64[2]"), {"x": in_axis}, out_axis, 5)
    x, w = rng.normal(size=(5, 3, 2)), rng.normal(size=2)
    (found,) = run(graph, x=np.moveaxis(x, 0, in_axis), w=w)
    np.testing.assert_allclose(found, np.moveaxis(np.tanh(x) * w, 0, out_axis), rtol=1e-15)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_line_up_after_the_batch_axis_even_when_sizes_coincide(graph_of, run, rng, size):
    graph = vmap_graph(graph_of(lambda a, b: add(a, b), a="f64[2]", b="f64[3, 2]"), 0, 0, size)
    a, b = rng.normal(size=(size, 2)), rng.normal(size=(size, 3, 2))
    np.testing.assert_array_equal(run(graph, a, b)[0], a[:, None, :] + b)


def test_params_are_mapped_by_name_only(graph_of, run, rng):
    graph = graph_of(scaled, params=("w",), x="f64[2]", w="f64[2]")
    x, w = rng.normal(size=2), rng.normal(size=(4, 2))
    assert str(vmap_graph(graph, 0, 0, 4).param_types["w"]) == "f64[2]"
    (found,) = run(vmap_graph(graph, {"w": 0}, 0, 4), x=x, w=w)
    np.testing.assert_allclose(found, np.tanh(x) * w, rtol=1e-15)


def test_what_depends_on_nothing_mapped_is_computed_once_and_repeated_on_output(graph_of, run):
    graph = vmap_graph(graph_of(lambda x, w: (x * 2.0, exp(w)), x="f64[2]", w="f64[3]"), [0, None], [0, -1], 4)
    exponential = next(n for n in graph.nodes if n.op.name == "rlx.exp")
    assert str(exponential.type) == "f64[3]"
    assert [str(t) for t in graph.output_types] == ["f64[4, 2]", "f64[3, 4]"]


def test_an_output_axis_of_none_keeps_a_shared_output_as_it_is(graph_of):
    graph = graph_of(lambda x, w: (x * 2.0, exp(w)), x="f64[2]", w="f64[3]")
    assert str(vmap_graph(graph, [0, None], [0, None], 4).output_types[1]) == "f64[3]"
    with pytest.raises(ShapeError, match="output 0 differs between examples"):
        vmap_graph(graph, [0, None], None, 4)


def test_an_op_without_a_rule_is_batched_through_its_decomposition(graph_of, run, rng):
    graph = graph_of(lambda x: softmax(x, axis=-1), x="f64[3, 2]")
    engine = Engine(ignoring=frozenset({("batch", "rlx.softmax")}))
    x = rng.normal(size=(4, 3, 2))
    own, derived = vmap_graph(graph, 0, 0, 4), vmap_graph(graph, 0, 0, 4, engine=engine)
    assert "rlx.softmax" not in {n.op.name for n in derived.nodes}
    np.testing.assert_allclose(run(own, x)[0], run(derived, x)[0], rtol=1e-14)


def test_vmap_of_vmap_and_vmap_of_a_gradient(graph_of, run, rng):
    graph = graph_of(lambda x, w: sum_axes(scaled(x, w), axes=(0,)), x="f64[2]", w="f64[2]")
    gradient = vjp_graph(graph, ["w"], seed="one")
    twice = vmap_graph(vmap_graph(gradient, [0, None], 0, 3), [1, 0], 0, 4)
    x, w = rng.normal(size=(3, 4, 2)), rng.normal(size=(4, 2))
    value, dw = run(twice, x, w)
    np.testing.assert_allclose(value, np.sum(np.tanh(x) * w, -1).T, rtol=1e-13)
    np.testing.assert_allclose(dw, np.tanh(x).transpose(1, 0, 2), rtol=1e-13)


def test_the_gradient_of_a_batched_graph_is_summed_over_what_is_shared(graph_of, run, rng):
    batched = vmap_graph(graph_of(scaled, x="f64[2]", w="f64[2]"), [0, None], 0, 3)
    x, w, g = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=(3, 2))
    np.testing.assert_allclose(run(vjp_graph(batched, ["w"]), x, w, g)[1], (np.tanh(x) * g).sum(0), rtol=1e-13)


def test_a_symbolic_number_of_examples(graph_of):
    from rlx_core.ir.dims import symbol

    graph = vmap_graph(graph_of(scaled, x="f64[3, 2]", w="f64[2]"), [0, None], 0, symbol("B"))
    assert str(graph.output_types[0]) == "f64[B, 3, 2]"


def test_a_missing_batching_rule_names_op_and_method(graph_of):
    with pytest.raises(MissingRuleError) as caught:
        vmap_graph(graph_of(lambda x: Unbatchable()(x), x="f32[2]"), 0, 0, 3)
    assert "test.unbatchable: it has no batch rule" in caught.value.message
    assert "def batch(self, size, x, is_batched)" in caught.value.hint


def test_a_rule_that_loses_the_batch_axis_is_refused_with_both_types(graph_of):
    def rule(op, size, x, is_batched):
        return sum_axes(x[0], axes=(0,))

    engine = Engine(rules={("batch", "test.unbatchable"): rule})
    with pytest.raises(ShapeError, match=r"must give f32\[3, 2\], not f32\[2\]"):
        vmap_graph(graph_of(lambda x: Unbatchable()(x), x="f32[2]"), 0, 0, 3, engine=engine)


@pytest.mark.parametrize(
    ("in_axes", "out_axes", "error", "says"),
    [
        (3, 0, AxisError, "axis 3 is outside"),
        ([0], 0, WrongInputCountError, "in_axes has 1 entries"),
        (0, [0, 0], WrongInputCountError, "out_axes has 2 entries"),
        ({"y": 0}, 0, UnknownNameError, "no input or param 'y'"),
        (0, 5, AxisError, "output 0: axis 5"),
    ],
)
def test_axes_that_cannot_be_are_refused(graph_of, in_axes, out_axes, error, says):
    with pytest.raises(error, match=says):
        vmap_graph(graph_of(scaled, x="f64[2]", w="f64[2]"), in_axes, out_axes, 3)


def test_a_replicated_result_has_no_axis_and_is_repeated_where_one_is_asked_for(graph_of, run, rng):
    graph = graph_of(lambda x: (Largest()(x), Largest()(x) * 2.0, Largest()(x) + x), x="f64[2]")
    mapped = vmap_graph(graph, 0, [None, 0, 0], 3)
    x = rng.normal(size=(3, 2))
    total, twice, added = run(mapped, x)
    np.testing.assert_allclose(total, x.sum(0))
    np.testing.assert_allclose(twice, np.broadcast_to(2 * x.sum(0), (3, 2)))
    np.testing.assert_allclose(added, x + x.sum(0))
    product = next(n for n in mapped.nodes if n.op.name == "rlx.mul")
    assert str(product.type) == "f64[2]", "it is computed once"


def test_a_replicated_result_with_the_axis_is_refused(graph_of):
    with pytest.raises(ShapeError, match=r"largest: its batch rule must give f64\[2\], not f64\[3, 2\]"):
        vmap_graph(graph_of(lambda x: Largest(has_axis=True)(x), x="f64[2]"), 0, 0, 3)


def test_the_engine_of_a_mapping_without_a_name_knows_no_axis(graph_of):
    """The name of an outer mapping is not that of the axis which an inner one adds."""
    graph = graph_of(lambda x: PSum(("i",), (4,))(x), x="f64[2]")
    engine = Engine(mesh=Mesh(("i",), (4,)))
    assert [n.op.title for n in vmap_graph(graph, 0, 0, 4, engine=engine).nodes if n.operands] == ["psum"]
    assert [n.op.title for n in vmap_graph(graph, 0, None, 4, axis_name="i").nodes if n.operands] == ["sum"]

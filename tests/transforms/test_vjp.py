"""Reverse mode of whole graphs: what comes out, in which order, and what is refused."""

import numpy as np
import pytest

from rlx_core.errors import DtypeError, MissingRuleError, ShapeError, UnknownNameError
from rlx_core.ir.graph import Builder, Constant, building
from rlx_core.ir.op import ZERO, Op, define_op
from rlx_core.ir.provenance import Origin, Source, originating
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import cast
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import sum_axes
from rlx_core.transforms.engine import Engine
from rlx_core.transforms.prepare import prepare
from rlx_core.transforms.vjp import grad, grad_with_loss, vjp_graph, vjp_with_values


@define_op(domain="test")
class Opaque(Op):
    """A primitive without any rule but its reference."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x * w


@define_op(domain="test")
class Forgetful(Op):
    """An op whose rule forgets its second operand."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x * w

    def vjp(self, g, x, w, *, y):
        return (g * w, None)


@define_op(domain="test")
class WrongType(Op):
    """An op whose rule gives a cotangent of another dtype."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def vjp(self, g, x, *, y):
        return (cast(g, to=spec("f64[]").dtype),)


def loss(x, w):
    return sum_axes(multiply(tanh(x), w), axes=(0, 1))


def test_outputs_are_the_loss_and_then_the_gradients_in_the_order_asked(graph_of, run, rng):
    graph = grad_with_loss(graph_of(loss, x="f64[3, 2]", w="f64[2]"), ["w", "x"])
    x, w = rng.normal(size=(3, 2)), rng.normal(size=2)
    value, dw, dx = run(graph, x, w, 1.0)
    np.testing.assert_allclose(value, np.sum(np.tanh(x) * w))
    np.testing.assert_allclose(dw, np.tanh(x).sum(0))
    np.testing.assert_allclose(dx, (1 - np.tanh(x) ** 2) * w)
    assert list(graph.input_types) == ["x", "w", "d_output"]


def test_the_cotangent_input_scales_the_gradients(graph_of, run, rng):
    graph = grad(graph_of(loss, x="f64[3, 2]", w="f64[2]"), ["w"])
    x, w = rng.normal(size=(3, 2)), rng.normal(size=2)
    np.testing.assert_allclose(run(graph, x, w, 2.5)[0], 2.5 * run(graph, x, w, 1.0)[0], rtol=1e-15)


def test_auxiliary_outputs_pass_through_undifferentiated(graph_of, run):
    graph = graph_of(lambda x: (sum_axes(x * x, axes=(0,)), exp(x)), x="f64[2]")
    both = grad_with_loss(graph, ["x"], aux=1)
    value, aux, dx = run(both, [1.0, 2.0], 1.0)
    np.testing.assert_allclose([value, *aux, *dx], [5, np.e, np.e**2, 2, 4])


def test_several_outputs_have_a_cotangent_each(graph_of, run):
    graph = vjp_graph(graph_of(lambda x: (x * x, x * 3.0), x="f64[2]"), ["x"])
    assert list(graph.input_types) == ["x", "d_output_0", "d_output_1"]
    np.testing.assert_allclose(run(graph, [1.0, 2.0], [1.0, 1.0], [10.0, 0.0])[2], [32, 4])


def test_an_output_that_is_an_input_or_repeats_gets_the_sum_of_its_cotangents(graph_of, run):
    graph = vjp_graph(graph_of(lambda x: (x, x, x * 2.0), x="f64[]"), ["x"])
    assert run(graph, 1.0, 1.0, 10.0, 100.0)[-1] == 211


def test_params_and_intermediate_values_are_addressed_by_name_or_handle(graph_of, run):
    def f(x, w):
        return sum_axes(multiply(x, w, name="scaled") * x, axes=(0,))

    graph = graph_of(f, params=("w",), x="f64[2]", w="f64[2]")
    by_name = grad(graph, ["w", "scaled"], seed="one")
    by_handle = grad(graph, [graph.find("w"), graph.find("scaled")], seed="one")
    assert by_name == by_handle
    dw, dscaled = run(by_name, x=[2.0, 3.0], w=[5.0, 7.0])
    np.testing.assert_allclose(dw, [4, 9])
    np.testing.assert_allclose(dscaled, [2, 3])


def test_handles_survive_decomposition_and_rebuilding(graph_of, run):
    def f(x, w):
        return sum_axes(softmax(multiply(x, w, name="logits")) * x, axes=(0, 1))

    graph = graph_of(f, x="f64[2, 3]", w="f64[3]")
    engine = Engine(ignoring=frozenset({("vjp", "rlx.softmax")}))
    handle = graph.find("logits")
    prepared, values = prepare(graph, "vjp", ["x", "w"], engine=engine)
    again, moved = rebuild(prepared, lambda node, operands: None)
    arrays = {"x": np.arange(6.0).reshape(2, 3) / 5, "w": np.ones(3)}
    wanted = run(grad(graph, [handle, "w"], seed="one"), **arrays)
    found = run(grad(again, [moved[values[handle]], "w"], seed="one"), **arrays)
    named = run(grad(again, ["logits", "w"], seed="one"), **arrays)
    for a, b, c in zip(wanted, found, named, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        np.testing.assert_allclose(a, c, rtol=1e-12)


def test_the_value_map_reaches_forward_values_in_the_new_graph(graph_of):
    graph = graph_of(loss, x="f64[3, 2]", w="f64[2]")
    both, values = vjp_with_values(graph, ["x"])
    assert values[graph.outputs[0]] is both.outputs[0]


def test_an_unreached_value_has_zeros_of_its_own_type(graph_of, run):
    graph = graph_of(lambda x, w: sum_axes(x, axes=(0,)), x="f32[2]", w="f16[3, 1]")
    found = grad(graph, ["w", "x"])
    assert [str(t) for t in found.output_types] == ["f16[3, 1]", "f32[2]"]
    np.testing.assert_array_equal(run(found, [1.0, 2.0], np.ones((3, 1)), 1.0)[0], np.zeros((3, 1)))


def test_an_unreached_value_is_an_error_that_names_it_when_asked(graph_of):
    graph = graph_of(lambda x, w: sum_axes(x, axes=(0,)), x="f32[2]", w="f16[3, 1]")
    with pytest.raises(ShapeError, match="depends on w"):
        grad(graph, ["w"], allow_unreached=False)


def test_a_misspelt_name_is_answered_with_the_nearest(graph_of):
    with pytest.raises(UnknownNameError, match="weight"):
        grad(graph_of(lambda weight: sum_axes(weight, axes=(0,)), weight="f32[2]"), ["wieght"])


def test_a_value_of_another_graph_is_refused(graph_of):
    one, other = (graph_of(loss, x="f64[3, 2]", w="f64[2]") for _ in range(2))
    with pytest.raises(UnknownNameError, match="is a value of graph"):
        grad(one, [other.find("x")])


def test_a_loss_that_is_not_a_scalar_is_refused_with_its_shape(graph_of):
    with pytest.raises(ShapeError, match=r"scalar, not f64\[2\]"):
        grad(graph_of(lambda x: x * 2.0, x="f64[2]"), ["x"])


@pytest.mark.parametrize("kind", ["i32", "c64", "bool"])
def test_a_loss_that_is_not_real_is_refused(graph_of, kind):
    with pytest.raises(DtypeError):
        grad(
            graph_of(lambda x, y: sum_axes(y, axes=(0,)) if kind != "bool" else y == y, x="f32[1]", y=f"{kind}[1]"),
            ["x"],
        )


def test_an_integer_has_no_gradient(graph_of):
    graph = graph_of(lambda x, i: sum_axes(x * cast(i, to=x.dtype), axes=(0,)), x="f32[2]", i="i32[2]")
    with pytest.raises(DtypeError, match="i32 has no gradient"):
        grad(graph, ["i"])


def test_integers_between_floats_stop_the_derivative(graph_of, run):
    graph = graph_of(lambda x: sum_axes(cast(cast(x, to=spec("i32[]").dtype), to=x.dtype) * x, axes=(0,)), x="f64[2]")
    np.testing.assert_array_equal(run(grad(graph, ["x"], seed="one"), [2.5, 3.5])[0], [2, 3])


def test_a_missing_rule_names_op_transformation_operand_and_method(graph_of):
    graph = graph_of(lambda x, w: sum_axes(Opaque()(x, w), axes=(0,)), x="f32[2]", w="f32[2]")
    with pytest.raises(MissingRuleError) as caught:
        grad(graph, ["w"])
    assert "test.opaque: it has no vjp rule for operand w" in caught.value.message
    assert "def vjp(self, g, x, w, *, y)" in caught.value.hint
    assert "class Opaque" in caught.value.hint


def test_a_rule_that_leaves_out_a_differentiable_operand_is_a_missing_rule(graph_of, run):
    graph = graph_of(lambda x, w: sum_axes(Forgetful()(x, w), axes=(0,)), x="f64[2]", w="f64[2]")
    with pytest.raises(MissingRuleError, match="operand w"):
        grad(graph, ["x", "w"])
    np.testing.assert_array_equal(run(grad(graph, ["x"], seed="one"), [1.0, 2.0], [3.0, 4.0])[0], [3, 4])


def test_a_cotangent_of_another_type_is_refused_with_both_types(graph_of):
    with pytest.raises(DtypeError, match=r"test.wrong_type.vjp: the cotangent of x must be f32\[\], not f64\[\]"):
        grad(graph_of(lambda x: WrongType()(x), x="f32[]"), ["x"])


def test_a_contributed_rule_serves_an_op_without_one(graph_of, run):
    def rule(op, g, x, w, *, y):
        return g * w, g * x

    graph = graph_of(lambda x, w: sum_axes(Opaque()(x, w), axes=(0,)), x="f64[2]", w="f64[2]")
    found = grad(graph, ["w"], seed="one", engine=Engine(rules={("vjp", "test.opaque"): rule}))
    np.testing.assert_array_equal(run(found, [1.0, 2.0], [3.0, 4.0])[0], [1, 2])


def test_a_declared_zero_is_zeros_not_an_error(graph_of, run):
    def rule(op, g, x, w, *, y):
        return ZERO, g * x

    graph = graph_of(lambda x, w: sum_axes(Opaque()(x, w), axes=(0,)), x="f64[2]", w="f64[2]")
    found = grad(graph, ["x"], seed="one", engine=Engine(rules={("vjp", "test.opaque"): rule}))
    np.testing.assert_array_equal(run(found, [1.0, 2.0], [3.0, 4.0])[0], [0, 0])


def test_only_what_the_gradient_needs_is_decomposed(graph_of):
    graph = graph_of(lambda x, w: sum_axes(softmax(x) * softmax(w), axes=(0,)), x="f32[3]", w="f32[3]")
    engine = Engine(ignoring=frozenset({("vjp", "rlx.softmax")}))
    found = vjp_graph(graph, ["w"], engine=engine)
    assert [n.op.name for n in found.nodes].count("rlx.softmax") == 1


def test_an_operand_read_twice_gets_both_contributions(graph_of, run):
    graph = graph_of(lambda x: multiply(x, x), x="f64[]")
    assert run(grad(graph, ["x"], seed="one"), 3.0) == [6.0]


@pytest.mark.medium
def test_a_long_chain_needs_no_recursion_and_stays_linear(long_chain):
    assert len(grad_with_loss(long_chain, ["x"]).nodes) <= 6 * len(long_chain.nodes)


def test_gradient_nodes_inherit_where_the_primal_came_from():
    builder = Builder("f")
    line = Source("model.py", 41)
    with building(builder), originating(Origin(source=line, block="layer0")):
        x = builder.input("x", spec("f32[]"))
        y = exp(x)
    graph = builder.finish([y])
    found = grad_with_loss(graph, ["x"])
    product = found.outputs[-1].node
    assert product.origin == Origin(source=line, block="layer0", created_by="vjp")


def test_gradient_of_a_gradient_finds_a_free_name_for_its_cotangents(graph_of, run):
    once = grad(graph_of(lambda x: multiply(x, multiply(x, x)), x="f64[]"), ["x"])
    twice = grad(once, ["x"])
    assert list(twice.input_types) == ["x", "d_output", "d_output__2"]
    assert run(twice, 2.0, 1.0, 1.0) == [12.0]


def test_constants_of_rules_have_the_dtype_of_what_they_meet(graph_of):
    for kind in ("f16", "bf16", "f64"):
        graph = grad_with_loss(graph_of(lambda x: sum_axes(tanh(x) * 2.0, axes=(0,)), x=f"{kind}[2]"), ["x"])
        constants = [n.type.dtype.name for n in graph.nodes if isinstance(n.op, Constant)]
        assert set(constants) == {kind}


def test_the_order_of_contributions_is_fixed(graph_of):
    def f(x):
        return add(add(exp(x), tanh(x)), multiply(x, x))

    assert grad_with_loss(graph_of(f, x="f32[]"), ["x"]) == grad_with_loss(graph_of(f, x="f32[]"), ["x"])


def test_a_symbolic_batch_is_differentiated_without_binding_it(graph_of):
    graph = graph_of(lambda x, w: sum_axes(x * w, axes=(0, 1)), x="f64[n, 2]", w="f64[2]")
    found = grad(graph, ["w", "x"], seed="one")
    assert [str(t) for t in found.output_types] == ["f64[2]", "f64[n, 2]"]


def test_preparing_keeps_the_name_of_a_decomposed_node(graph_of):
    graph = graph_of(lambda x: softmax(x, name="probabilities"), x="f32[3]")
    engine = Engine(ignoring=frozenset({("vjp", "rlx.softmax")}))
    prepared, values = prepare(graph, "vjp", ["x"], engine=engine)
    assert prepared.find("probabilities") is values[graph.outputs[0]]

"""Forward mode of whole graphs, and the derivation of each mode from the other."""

import numpy as np
import pytest

from rlx_core.errors import DtypeError, MissingRuleError
from rlx_core.ir.dtypes import f32, i32
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import cast
from rlx_core.ops.structural import sum_axes
from rlx_core.transforms.jvp import jvp_graph, jvp_with_values
from rlx_core.transforms.vjp import vjp_graph


@define_op(domain="test")
class OnlyReverse(Op):
    """x²·w with a VJP and no JVP."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x * x * w

    def vjp(self, g, x, w, *, y):
        return g * 2.0 * x * w, g * x * x


@define_op(domain="test")
class OnlyForward(Op):
    """x²·w with a JVP and no VJP."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x * x * w

    def jvp(self, t, x, w, *, y):
        t_x, t_w = t
        terms = [] if isinstance(t_x, Zero) else [t_x * 2.0 * x * w]
        terms += [] if isinstance(t_w, Zero) else [t_w * x * x]
        return sum(terms[1:], start=terms[0])


@define_op(domain="test")
class Circular(Op):
    """A linear op whose only rule is itself: nothing to transpose it with."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x * 2

    def jvp(self, t, x, *, y):
        return ZERO if isinstance(t[0], Zero) else self(t[0])


def test_outputs_are_the_primals_and_then_their_tangents(graph_of, run):
    graph = jvp_graph(graph_of(lambda x, w: (multiply(x, w), exp(w)), x="f64[]", w="f64[]"), ["w", "x"])
    assert list(graph.input_types) == ["x", "w", "tangent_w", "tangent_x"]
    np.testing.assert_allclose(run(graph, 2.0, 3.0, 10.0, 100.0), [6, np.exp(3), 320, 10 * np.exp(3)])


def test_a_missing_tangent_keeps_dims_and_dtype_of_the_result(graph_of):
    for seeded in (["x"], ["w"]):
        graph = jvp_graph(graph_of(lambda x, w: add(x, w), x="f16[3]", w="f16[2, 3]"), seeded)
        assert str(graph.output_types[1]) == "f16[2, 3]"


def test_an_output_that_nothing_reaches_has_a_tangent_of_zeros(graph_of, run):
    graph = jvp_graph(graph_of(lambda x, w: (tanh(x), exp(w)), x="f32[2]", w="f32[3]"), ["x"])
    assert str(graph.output_types[3]) == "f32[3]"
    np.testing.assert_array_equal(run(graph, np.ones(2), np.ones(3), np.ones(2))[3], np.zeros(3))


def test_integer_outputs_keep_their_place_among_the_tangents(graph_of):
    graph = graph_of(lambda x: (cast(x, to=i32), x * 2.0), x="f32[2]")
    assert [str(t) for t in jvp_graph(graph, ["x"]).output_types] == ["i32[2]", "f32[2]", "i32[2]", "f32[2]"]


def test_an_integer_has_no_tangent(graph_of):
    with pytest.raises(DtypeError, match="i32 has no tangent"):
        jvp_graph(graph_of(lambda i: cast(i, to=f32), i="i32[2]"), ["i"])


def test_an_intermediate_value_is_perturbed_beside_what_reaches_it(graph_of, run):
    graph = graph_of(lambda x: multiply(exp(x, name="e"), 2.0), x="f64[]")
    assert run(jvp_graph(graph, ["x", "e"]), 0.0, 1.0, 10.0)[1] == 22


def test_forward_mode_is_derived_by_transposing_the_reverse_rule(graph_of, run):
    graph = graph_of(lambda x, w: OnlyReverse()(x, w), x="f64[2]", w="f64[2]")
    x, w, t, u = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [13.0, 17.0]])
    np.testing.assert_allclose(run(jvp_graph(graph, ["x", "w"]), x, w, t, u)[1], 2 * x * w * t + x * x * u)
    np.testing.assert_allclose(run(jvp_graph(graph, ["w"]), x, w, u)[1], x * x * u)


def test_reverse_mode_is_derived_by_transposing_the_forward_rule(graph_of, run):
    graph = graph_of(lambda x, w: OnlyForward()(x, w), x="f64[2]", w="f64[2]")
    x, w, g = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
    _, dx, dw = run(vjp_graph(graph, ["x", "w"]), x, w, g)
    np.testing.assert_allclose(dx, 2 * x * w * g)
    np.testing.assert_allclose(dw, x * x * g)


def test_a_derived_rule_is_differentiable_again(graph_of, run):
    graph = graph_of(lambda x, w: sum_axes(OnlyForward()(x, w), axes=(0,)), x="f64[2]", w="f64[2]")
    second = jvp_graph(vjp_graph(graph, ["x"], seed="one"), ["x"])
    x, w, t = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
    np.testing.assert_allclose(run(second, x, w, t)[3], 2 * w * t)


def test_a_derivation_that_comes_back_to_itself_is_a_missing_rule(graph_of):
    with pytest.raises(MissingRuleError, match=r"test\.circular: it has no vjp rule for operand x"):
        vjp_graph(graph_of(lambda x: Circular()(x), x="f64[2]"), ["x"])


def test_a_missing_forward_rule_names_op_and_method(graph_of):
    @define_op(domain="test")
    class Bare(Op):
        def infer(self, x: TensorType) -> TensorType:
            return x

    with pytest.raises(MissingRuleError) as caught:
        jvp_graph(graph_of(lambda x: Bare()(x), x="f64[2]"), ["x"])
    assert "it has no jvp rule for operand x" in caught.value.message
    assert "def jvp(self, t, x, *, y)" in caught.value.hint


def test_dead_nodes_are_not_differentiated(graph_of):
    graph = graph_of(lambda x: (exp(x), tanh(x))[1], x="f32[]")
    found, _ = jvp_with_values(graph, ["x"])
    assert [n.op.name for n in found.nodes].count("rlx.exp") == 1


@pytest.mark.medium
def test_a_long_chain_needs_no_recursion_and_stays_linear(long_chain):
    assert len(jvp_graph(long_chain, ["x"]).nodes) <= 6 * len(long_chain.nodes)

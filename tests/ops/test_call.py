"""Ops with nested graphs: calls, and functions with a derivative of their own."""

import numpy as np
import pytest

from rlx_core.errors import FormatError, MissingRuleError, ShapeError
from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.call import Call, traced
from rlx_core.ops.derivatives.custom_fn import CustomFn
from rlx_core.ops.structural import sum_axes
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.engine import Engine
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.prepare import inline_calls
from rlx_core.transforms.vjp import vjp_graph


def graph_with(op: Op, **types: str) -> Graph:
    builder = Builder("f")
    with building(builder):
        results = as_results(op(*(builder.input(n, spec(t)) for n, t in types.items())))
    return builder.finish(results)


def run(graph: Graph, *arrays) -> list[np.ndarray]:
    return list(interpret(graph, dict(zip(graph.input_types, map(np.asarray, arrays), strict=True)), mode="wide"))


square = traced("square", lambda x: multiply(x, x), "f64[2]")
# A derivative of 10·x instead of 2·x shows which rule was used.
tenfold_vjp = traced("tenfold_vjp", lambda x, y, g: multiply(g, multiply(x, 10.0)), "f64[2] f64[2] f64[2]")
tenfold_jvp = traced("tenfold_jvp", lambda x, t: multiply(t, multiply(x, 10.0)), "f64[2] f64[2]")


def test_inlining_reaches_calls_inside_calls():
    outer = traced("outer", lambda x: exp(Call(square)(x)), "f64[2]")
    graph = graph_with(Call(outer), x="f64[2]")
    flat, values = inline_calls(graph)
    assert not any(isinstance(n.op, Call) for n in flat.nodes)
    assert values[graph.outputs[0]] is flat.outputs[0]
    np.testing.assert_array_equal(run(flat, [1.0, 2.0])[0], run(graph, [1.0, 2.0])[0])


def test_calls_of_equal_bodies_are_equal_ops():
    again = traced("other_name", lambda x: multiply(x, x), "f64[2]")
    assert Call(square) == Call(again)
    assert hash(Call(square)) == hash(Call(again))


def test_a_body_with_params_is_refused():
    builder = Builder("body")
    body = builder.finish([builder.param("w", spec("f64[2]"))])
    with pytest.raises(FormatError, match="body has w"):
        Call(body)


def test_the_given_reverse_rule_is_used_instead_of_the_function_itself():
    graph = graph_with(CustomFn(square, tenfold_vjp), x="f64[2]")
    np.testing.assert_array_equal(run(vjp_graph(graph, ["x"]), [1.0, 2.0], [1.0, 1.0])[1], [10, 20])


def test_the_other_mode_is_the_transpose_of_the_one_given():
    forward = jvp_graph(graph_with(CustomFn(square, tenfold_vjp), x="f64[2]"), ["x"])
    reverse = vjp_graph(graph_with(CustomFn(square, jvp_graph=tenfold_jvp), x="f64[2]"), ["x"])
    np.testing.assert_array_equal(run(forward, [1.0, 2.0], [1.0, 1.0])[1], [10, 20])
    np.testing.assert_array_equal(run(reverse, [1.0, 2.0], [1.0, 1.0])[1], [10, 20])


def test_a_custom_derivative_survives_batching_and_sums_over_shared_operands():
    fwd = traced("fwd", multiply, "f64[2] f64[2]")
    vjp = traced("vjp", lambda x, w, y, g: (multiply(g, w), multiply(multiply(g, x), 10.0)), " ".join(["f64[2]"] * 4))
    batched = vmap_graph(graph_with(CustomFn(fwd, vjp), x="f64[2]", w="f64[2]"), [0, None], 0, 3)
    x, w, g = np.arange(6.0).reshape(3, 2), np.array([2.0, 3.0]), np.ones((3, 2))
    y, dx, dw = run(vjp_graph(batched, ["x", "w"]), x, w, g)
    np.testing.assert_array_equal(y, x * w)
    np.testing.assert_array_equal(dx, np.broadcast_to(w, (3, 2)))
    np.testing.assert_array_equal(dw, 10 * x.sum(0))


def test_contributed_rules_hold_inside_nested_graphs():
    @define_op(domain="test")
    class Mystery(Op):
        def infer(self, x: TensorType) -> TensorType:
            return x

        def reference(self, x: np.ndarray) -> np.ndarray:
            return x * 3

    body = traced("body", lambda x: Mystery()(x), "f64[2]")
    engine = Engine(rules={("batch", "test.mystery"): lambda op, size, x, is_batched: op(x[0])})
    graph = graph_with(CustomFn(body, tenfold_vjp), x="f64[2]")
    with pytest.raises(MissingRuleError, match=r"test\.mystery"):
        vmap_graph(graph, 0, 0, 3)
    np.testing.assert_array_equal(
        run(vmap_graph(graph, 0, 0, 3, engine=engine), np.ones((3, 2)))[0], np.full((3, 2), 3)
    )


def test_a_derivative_graph_of_other_types_is_refused_with_both_lists():
    wrong = traced("wrong", lambda x, y, g: sum_axes(g, axes=(0,)), "f64[2] f64[2] f64[2]")
    with pytest.raises(FormatError, match=r"vjp_graph gives \(f64\[\]\), not \(f64\[2\]\)"):
        CustomFn(square, wrong)


def test_a_call_refuses_operands_of_other_dims():
    with pytest.raises(ShapeError, match=r"x0 must be \[2\], not f64\[3\]"):
        graph_with(Call(square), x="f64[3]")

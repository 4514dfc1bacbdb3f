"""Jacobians, Hessians and linearisation against closed forms."""

import numpy as np
import pytest

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.structural import sum_axes
from rlx_core.transforms.higher import hessian, hvp, jacfwd, jacrev
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.linearization import linearize


def test_the_hessian_of_a_sum_of_squares_times_v_is_2v(graph_of, run, rng):
    graph = hvp(graph_of(lambda x: sum_axes(x * x, axes=(0,)), x="f64[3]"), ["x"])
    x, v = rng.normal(size=3), rng.normal(size=3)
    loss, gradient, tangent, product = run(graph, x, v)
    np.testing.assert_allclose(loss, x @ x)
    np.testing.assert_allclose(gradient, 2 * x)
    np.testing.assert_allclose(tangent, 2 * x @ v)
    np.testing.assert_allclose(product, 2 * v)


def test_the_jacobian_of_an_element_wise_function_is_diagonal(graph_of, run, rng):
    x = rng.normal(size=4)
    (found,) = run(jacfwd(graph_of(lambda x: tanh(x), x="f64[4]"), ["x"]), x)
    np.testing.assert_allclose(found, np.diag(1 - np.tanh(x) ** 2), atol=1e-15)


def test_both_modes_give_the_same_jacobian_in_result_by_operand_dims(graph_of, run, rng):
    graph = graph_of(lambda x, w: (multiply(exp(x), w), sum_axes(x * w, axes=(0,))), x="f64[3, 2]", w="f64[2]")
    x, w = rng.normal(size=(3, 2)), rng.normal(size=2)
    forward, reverse = run(jacfwd(graph, ["x", "w"]), x, w), run(jacrev(graph, ["x", "w"]), x, w)
    assert [a.shape for a in forward] == [(3, 2, 3, 2), (3, 2, 2), (2, 3, 2), (2, 2)]
    for a, b in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_the_matrix_form_flattens_both_sides(graph_of):
    graph = graph_of(lambda x: exp(x), x="f64[3, 2]")
    assert [str(jac(graph, ["x"], form="matrix").output_types[0]) for jac in (jacfwd, jacrev)] == ["f64[6, 6]"] * 2


def test_the_jacobian_is_batched_not_looped_over(graph_of):
    small, large = (jacfwd(graph_of(lambda x: tanh(x), x=f"f64[{n}]"), ["x"]) for n in (2, 50))
    assert len(small.nodes) == len(large.nodes)


def test_the_hessian_is_symmetric_and_right(graph_of, run, rng):
    x = rng.normal(size=3)
    graph = graph_of(lambda x: multiply(sum_axes(exp(x), axes=(0,)), sum_axes(x, axes=(0,))), x="f64[3]")
    (found,) = run(hessian(graph, ["x"]), x)
    e, total = np.exp(x), x.sum()
    np.testing.assert_allclose(found, np.diag(e) * total + e[:, None] + e[None, :], rtol=1e-13)


def test_complex_jacobians_are_refused(graph_of):
    with pytest.raises(DtypeError, match="real float"):
        jacrev(graph_of(lambda x: x * x, x="c128[2]"), ["x"])


def test_a_second_derivative_needs_a_scalar_loss(graph_of):
    for transform in (hvp, hessian):
        with pytest.raises(ShapeError, match="scalar"):
            transform(graph_of(lambda x: x * x, x="f64[2]"), ["x"])


def test_linearising_computes_everything_that_needs_no_tangent_once(graph_of, run, rng):
    graph = graph_of(lambda x, w: multiply(exp(multiply(x, w)), 3.0), x="f64[2]", w="f64[2]")
    parts = linearize(graph, ["w"])
    x, w, t = rng.normal(size=(3, 2))
    value, *residuals = run(parts.primal, x, w)
    assert len(residuals) == parts.residual_count
    assert "rlx.exp" not in {n.op.name for n in parts.linear.nodes}
    fed = {f"residual_{k}": r for k, r in enumerate(residuals)}
    whole = run(jvp_graph(graph, ["w"]), x, w, t)
    np.testing.assert_allclose([value, *run(parts.linear, tangent_w=t, **fed)], whole, rtol=1e-15)
    np.testing.assert_allclose(run(parts.linear, tangent_w=2 * t, **fed)[0], 2 * whole[1], rtol=1e-15)

"""`linearize`, `eval_shape`, and the auxiliary results of `vjp` and `jvp`, as users call them."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ShapeError

X, V = np.float32([0.5, -1.0, 2.0]), np.float32([1.0, 2.0, -3.0])


def function(tree, y):
    return {"z": rlx.exp(tree["x"]) * y, "n": rlx.argmax(y)}


def test_a_derivative_at_a_point_is_used_again_for_other_tangents():
    value, derivative = rlx.linearize(function, {"x": X}, V)
    np.testing.assert_allclose(value["z"], np.exp(X) * V, rtol=1e-6)
    for scale in (1.0, 2.0):
        t = np.float32(scale) * X
        pushed = derivative({"x": t}, V)
        np.testing.assert_allclose(pushed["z"], np.exp(X) * (t * V + V), rtol=1e-5)
        assert pushed["n"] is None


def test_the_derivative_does_not_compute_at_the_point_again():
    def both(x, t):
        _, derivative = rlx.linearize(rlx.exp, x)
        return derivative(t), derivative(2 * t)

    graph = rlx.trace(both, X, V)
    assert sum(n.op.name == "rlx.exp" for n in graph.nodes) == 1
    once, twice = rlx.jit(both)(X, V)
    np.testing.assert_allclose(once, np.exp(X) * V, rtol=1e-6)
    np.testing.assert_allclose(twice, 2 * np.exp(X) * V, rtol=1e-6)
    mapped = rlx.jit(lambda x, ts: rlx.vmap(rlx.linearize(rlx.sin, x)[1])(ts))(X, np.eye(3, dtype="f4"))
    np.testing.assert_allclose(mapped, np.diag(np.cos(X)), rtol=1e-6)


def test_a_tangent_of_other_dims_is_refused():
    _, derivative = rlx.linearize(rlx.exp, X)
    with pytest.raises(ShapeError, match="must be f32"):
        derivative(V[:2])
    with pytest.raises(ShapeError, match="structure"):
        derivative({"x": V})


def test_auxiliary_results_come_last_and_are_not_differentiated():
    def f(x):
        return rlx.sum(x * x), {"twice": 2 * x, "n": x.shape[0]}

    value, pullback, aux = rlx.vjp(f, X, has_aux=True)
    assert float(value) == pytest.approx(5.25)
    np.testing.assert_array_equal(pullback(np.float32(1))[0], 2 * X)
    np.testing.assert_array_equal(aux["twice"], 2 * X)
    value, tangent, aux = rlx.jvp(f, (X,), (V,), has_aux=True)
    assert float(tangent) == pytest.approx(float(2 * X @ V))
    assert int(aux["n"]) == 3
    inside = rlx.jit(lambda x: rlx.vjp(f, x, has_aux=True)[1](np.float32(3))[0])
    np.testing.assert_array_equal(inside(X), 6 * X)


ASKING = [lambda: rlx.vjp(rlx.sum, X, has_aux=True), lambda: rlx.jvp(rlx.exp, (X,), (V,), has_aux=True)]


@pytest.mark.parametrize("ask", ASKING, ids=["vjp", "jvp"])
def test_a_missing_auxiliary_result_is_an_error(ask):
    with pytest.raises(ShapeError, match="has_aux=True"):
        ask()


def test_shapes_are_found_without_computing():
    found = rlx.eval_shape(function, {"x": rlx.spec("f32[n]")}, rlx.spec("f32[n]"))
    assert found["z"] == rlx.spec("f32[n]")
    assert rlx.eval_shape(lambda x, power: x**power, X, power=2).shape == (3,)

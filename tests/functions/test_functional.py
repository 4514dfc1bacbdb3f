"""Transformations inside a trace: they nest, they share values, and outside of one they say what to call."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, ShapeError, TraceError
from rlx_core.functions import functional
from rlx_core.ir.interpret import interpret
from rlx_core.transforms.trace import trace
from rlx_core.trees.flatten import flatten

X, V = np.array([1.0, -2.0, 3.0]), np.array([0.5, 1.0, 2.0])


def evaluate(function, *args):
    """The results of a function that is written with `functional`, traced and interpreted."""
    traced = trace(function, args)
    leaves = flatten(args)[0]
    fed = {leaf.name: a for leaf, a in zip(traced.leaves, leaves, strict=True) if leaf.role == "input"}
    return traced.results.unflatten(interpret(traced.graph, fed))


@pytest.mark.parametrize("name", ["value_and_grad", "grad", "vmap", "jacfwd", "jacrev", "hessian"])
def test_outside_of_a_trace_the_public_function_is_named(name):
    with pytest.raises(TraceError, match="there is no program being traced"):
        getattr(functional, name)(rlx.sum)(X)


def test_the_value_and_the_pullback_share_the_forward_values():
    def f(x):
        value, pullback = functional.vjp(lambda x: rlx.exp(rlx.sin(x)), x)
        return value, pullback(V)[0]

    value, gradient = evaluate(f, X)
    np.testing.assert_allclose(value, np.exp(np.sin(X)), rtol=1e-14)
    np.testing.assert_allclose(gradient, V * np.exp(np.sin(X)) * np.cos(X), rtol=1e-14)


def test_a_pullback_may_be_called_again_and_mapped():
    def f(x):
        _, pullback = functional.vjp(lambda x: x * x, x)
        once = pullback(V)[0]
        mapped = functional.vmap(lambda g: pullback(g)[0])(np.stack([V, 2 * V]))
        return once, mapped

    once, mapped = evaluate(f, X)
    np.testing.assert_allclose(once, 2 * X * V, rtol=1e-14)
    np.testing.assert_allclose(mapped, [2 * X * V, 4 * X * V], rtol=1e-14)


def test_the_jacobian_of_a_product_with_a_captured_value():
    def f(x, y):
        return functional.jacrev(lambda t: t * y)(x), functional.jacfwd(lambda t: t * y)(x)

    for found in evaluate(f, X, V):
        np.testing.assert_allclose(found, np.diag(V), rtol=1e-14)


def layer(params, x, *, scale=1.0):
    return {"y": rlx.tanh(x @ params["w"] + params["b"]) * scale}


LAYER = {"w": np.array([[0.1, -0.4], [0.3, 0.2], [-0.5, 0.6]]), "b": np.array([0.2, -0.1])}


@pytest.mark.parametrize("jacobian", [functional.jacfwd, functional.jacrev])
def test_a_jacobian_by_a_pytree_has_a_jacobian_a_leaf(jacobian):
    def f(params, x):
        return jacobian(layer)(params, x, scale=2.0)

    found = evaluate(f, LAYER, X)["y"]
    slope = 2 * (1 - np.tanh(X @ LAYER["w"] + LAYER["b"]) ** 2)
    np.testing.assert_allclose(found["b"], np.diag(slope), rtol=1e-14)
    np.testing.assert_allclose(found["w"], np.einsum("k,i,jk->jik", slope, X, np.eye(2)), rtol=1e-14)


@pytest.mark.parametrize("jacobian", [functional.jacfwd, functional.jacrev])
def test_a_jacobian_by_several_arguments_is_a_tuple_and_auxiliary_results_come_after_it(jacobian):
    def with_inner(params, x):
        return layer(params, x)["y"], {"x": x * 2}

    def f(params, x):
        return jacobian(with_inner, (1, 0), has_aux=True)(params, x)

    (by_x, by_params), aux = evaluate(f, LAYER, X)
    slope = 1 - np.tanh(X @ LAYER["w"] + LAYER["b"]) ** 2
    np.testing.assert_allclose(by_x, slope[:, None] * LAYER["w"].T, rtol=1e-14)
    np.testing.assert_allclose(by_params["b"], np.diag(slope), rtol=1e-14)
    np.testing.assert_array_equal(aux["x"], 2 * X)


def test_a_hessian_by_pytrees_has_a_block_for_every_two_leaves():
    def loss(params, x):
        return rlx.sum(layer(params, x)["y"])

    def f(params, x):
        return functional.hessian(loss, (0, 1))(params, x)

    blocks, (_, by_x) = evaluate(f, LAYER, X)
    by_params = {name: block[0] for name, block in blocks.items()}
    y = np.tanh(X @ LAYER["w"] + LAYER["b"])
    second = -2 * y * (1 - y**2)
    np.testing.assert_allclose(by_params["b"]["b"], np.diag(second), rtol=1e-13)
    np.testing.assert_allclose(by_params["b"]["w"], np.einsum("k,i,jk->jik", second, X, np.eye(2)), rtol=1e-13)
    np.testing.assert_allclose(by_params["w"]["b"], np.moveaxis(by_params["b"]["w"], 0, -1), rtol=1e-13)
    np.testing.assert_allclose(by_x, np.einsum("ik,k,jk->ij", LAYER["w"], second, LAYER["w"]), rtol=1e-13)


def test_a_hessian_of_several_results_has_their_dims_first():
    found = evaluate(lambda x: functional.hessian(lambda x: x**3 * x[0])(x), X)
    assert found.shape == (3, 3, 3)
    np.testing.assert_allclose(found[0], np.diag([12 * X[0] ** 2, 0, 0]), rtol=1e-14)
    np.testing.assert_allclose(found[1], [[0, 3 * X[1] ** 2, 0], [3 * X[1] ** 2, 6 * X[1] * X[0], 0], [0, 0, 0]])


def test_arguments_by_keyword_are_mapped_along_their_first_axis():
    def f(x, rows):
        return functional.vmap(lambda x, *, row, shift=1.0: x * row + shift, in_axes=None)(x, row=rows)

    rows = np.stack([X, V])
    np.testing.assert_allclose(evaluate(f, X, rows), X * rows + 1, rtol=1e-15)


def test_a_size_is_needed_only_where_nothing_is_mapped():
    def f(x):
        return functional.vmap(rlx.exp, in_axes=None, axis_size=4)(x)

    np.testing.assert_allclose(evaluate(f, X), np.tile(np.exp(X), (4, 1)), rtol=1e-15)
    with pytest.raises(ShapeError, match="4, 3, the first of which is axis_size"):
        evaluate(lambda x: functional.vmap(rlx.exp, axis_size=4)(x), X)


def test_the_gradient_inside_of_a_mapped_function_may_use_mapped_values():
    def f(rows, x):
        return functional.vmap(lambda row: functional.grad(lambda t: rlx.sum(t * t * row))(x))(rows)

    rows = np.stack([X, V])
    np.testing.assert_allclose(evaluate(f, rows, X), 2 * X * rows, rtol=1e-14)


def test_results_without_derivatives_take_no_cotangents():
    def f(x):
        _, pullback = functional.vjp(lambda x: (x * x, rlx.argmax(x)), x)
        return pullback((V, np.int64(0)))[0]

    np.testing.assert_allclose(evaluate(f, X), 2 * X * V, rtol=1e-14)


def test_an_unused_argument_has_zeros_in_a_pullback():
    def f(x, y):
        return functional.vjp(lambda x, y: x * 2, x, y)[1](V)

    dx, dy = evaluate(f, X, X.astype(np.float32))
    np.testing.assert_array_equal(dx, 2 * V)
    assert dy.dtype == np.float32
    np.testing.assert_array_equal(dy, np.zeros(3))


def test_what_cannot_be_differentiated_is_named():
    with pytest.raises(DtypeError, match="vjp: argument n is i64"):
        evaluate(lambda n: functional.vjp(lambda n: n, n)[1](n), np.array([1]))
    with pytest.raises(ShapeError, match="another structure"):
        evaluate(lambda x: functional.jvp(lambda x: x, (x,), (x, x)), X)

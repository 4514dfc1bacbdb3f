"""Transformations inside a trace: they nest, they share values, and outside of one they say what to call."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, ShapeError, TraceError
from rlx_core.ir.interpret import interpret
from rlx_core.transforms import functional
from rlx_core.transforms.trace import trace

X, V = np.array([1.0, -2.0, 3.0]), np.array([0.5, 1.0, 2.0])


def evaluate(function, *args):
    """The results of a function that is written with `functional`, traced and interpreted."""
    traced = trace(function, args)
    fed = {leaf.name: a for leaf, a in zip(traced.leaves, args, strict=True) if leaf.role == "input"}
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

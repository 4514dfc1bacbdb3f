"""Transformations of functions, compiled and run: gradients, Jacobians, mapping, and every way to nest them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, DtypeError, MissingRuleError, ShapeError, TraceError

X = np.array([0.5, -1.0, 2.0])
V = np.array([1.0, 2.0, -1.0])
A = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 1.0]])
CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # float64 on both sides, a handful of operations


def quadratic(x):
    return 0.5 * rlx.sum(x * (A @ x))


def cubes(x):
    return rlx.sum(x**3)


class Layer(NamedTuple):
    w: Any
    b: Any


# ------------------------------------------------------------------------------------------- gradients


def test_the_gradient_of_a_quadratic_form_is_the_matrix_times_the_vector():
    np.testing.assert_allclose(rlx.grad(quadratic)(X), A @ X, **CLOSE)
    value, gradient = rlx.value_and_grad(quadratic)(X)
    np.testing.assert_allclose(value, 0.5 * X @ A @ X, **CLOSE)
    np.testing.assert_allclose(gradient, A @ X, **CLOSE)


@pytest.mark.parametrize("argnums", [0, 1, -1, (0,), (1, 0), [0, 1]], ids=str)
def test_argnums_choose_the_arguments_and_the_form_of_the_result(argnums):
    found = rlx.grad(lambda a, b: rlx.sum(a * b * b), argnums)(X, V)
    gradients = [V * V, 2 * X * V]
    if isinstance(argnums, int):
        np.testing.assert_allclose(found, gradients[argnums], **CLOSE)
    else:
        assert type(found) is tuple
        for gradient, i in zip(found, argnums, strict=True):
            np.testing.assert_allclose(gradient, gradients[i], **CLOSE)


def test_a_gradient_has_the_structure_of_its_argument():
    def loss(layers, x):
        for layer in layers:
            x = x * layer.w if layer.b is None else x * layer.w + layer.b
        return rlx.sum(x)

    layers = [Layer(X, V), Layer(V, None)]
    found = rlx.grad(loss)(layers, X)

    assert isinstance(found, list)
    assert all(isinstance(layer, Layer) for layer in found)
    assert found[1].b is None
    np.testing.assert_allclose(found[0].w, X * V, **CLOSE)
    np.testing.assert_allclose(found[0].b, V, **CLOSE)
    np.testing.assert_allclose(found[1].w, X * X + V, **CLOSE)


def test_auxiliary_results_come_along():
    def loss(x):
        y = x * x
        return rlx.sum(y), {"y": y, "count": rlx.astype(rlx.sum(x > 0), "i64")}

    (value, aux), gradient = rlx.value_and_grad(loss, has_aux=True)(X)
    np.testing.assert_allclose(value, (X * X).sum(), **CLOSE)
    np.testing.assert_allclose(aux["y"], X * X, **CLOSE)
    assert aux["count"] == 2
    np.testing.assert_allclose(gradient, 2 * X, **CLOSE)
    gradient, aux = rlx.grad(loss, has_aux=True)(X)
    np.testing.assert_allclose(gradient, 2 * X, **CLOSE)
    assert set(aux) == {"y", "count"}


def test_what_the_loss_does_not_reach_has_a_gradient_of_zeros_or_is_an_error():
    def loss(params):
        return rlx.sum(params["used"])

    params = {"used": X, "unused": A.astype(np.float32)}
    found = rlx.grad(loss)(params)
    assert found["unused"].dtype == np.float32
    np.testing.assert_array_equal(found["unused"], np.zeros((3, 3)))
    with pytest.raises((ShapeError, TraceError, MissingRuleError, ValueError), match=r"params\.unused"):
        rlx.grad(loss, allow_unreached=False)(params)


def test_gradients_of_keyword_and_static_arguments():
    def loss(x, power, *, scale):
        return rlx.sum(x**power) * scale

    np.testing.assert_allclose(rlx.grad(loss)(X, 2, scale=V[0]), 2 * X * V[0], **CLOSE)
    np.testing.assert_allclose(rlx.grad(loss)(X, 3, scale=2.0), 6 * X * X, **CLOSE)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: rlx.grad(lambda x: x * 2)(X), ShapeError, "must return one real scalar, not f64\\[3\\]"),
        (lambda: rlx.grad(lambda x: (rlx.sum(x), x))(X), ShapeError, "not f64\\[\\], f64\\[3\\]"),
        (lambda: rlx.grad(lambda x: None)(X), ShapeError, "not nothing"),
        (lambda: rlx.grad(lambda x: rlx.sum(x > 0))(X), ShapeError, "must return one real scalar"),
        (lambda: rlx.grad(cubes)(np.array([1, 2])), DtypeError, "argument x is i64"),
        (lambda: rlx.grad(cubes)(2), DtypeError, "argument x is the Python int"),
        (lambda: rlx.grad(cubes, 1)(X), AxisError, "argument 1 of a call with 1 arguments"),
        (lambda: rlx.grad(cubes, (0, -2))(X), AxisError, "argument -2 of a call with 1 arguments"),
        (lambda: rlx.grad(lambda p: rlx.sum(p["a"]))({"a": X, "n": np.int32(1)}), DtypeError, "argument p.n is i32"),
    ],
    ids=["not scalar", "several", "none", "bool", "integers", "static", "argnum", "negative", "leaf"],
)
def test_what_has_no_gradient_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_python_float_is_differentiated_by_as_an_f32_and_compiled_once_for_all_values():
    gradient = rlx.grad(lambda x: x * x * x)
    assert [float(gradient(v)) for v in (1.0, 2.0, 3.0)] == [3.0, 12.0, 27.0]
    assert gradient(2.0).dtype == np.float32
    assert len(gradient.executables) == 1
    value, (a, b) = rlx.value_and_grad(lambda p: p[0] * p[1])([3.0, 2.0])
    assert (float(value), float(a), float(b)) == (6.0, 2.0, 3.0)


def test_every_transformation_takes_python_floats():
    assert tuple(map(float, rlx.jvp(lambda x: x * x, (3.0,), (2.0,)))) == (9.0, 12.0)
    assert float(rlx.vjp(lambda x: x * x, 3.0)[1](np.float32(1))[0]) == 6.0
    assert rlx.hessian(lambda x: x * x)(3.0).dtype == np.float32
    assert float(rlx.jit(lambda x: rlx.grad(lambda s: s * s * x)(3.0))(np.float32(2))) == 12.0


def test_several_results_hint_at_has_aux():
    with pytest.raises(ShapeError) as caught:
        rlx.grad(lambda x: (rlx.sum(x), x))(X)
    assert "has_aux=True" in caught.value.hint


# --------------------------------------------------------------------------------------------- nesting


def test_gradients_close_over_traced_values():
    @rlx.jit
    def step(x, target):
        doubled = target * 2

        def loss(y):
            return rlx.sum((y - doubled) ** 2)

        return x - 0.5 * rlx.grad(loss)(x)

    np.testing.assert_allclose(step(X, V), 2 * V, **CLOSE)


def test_a_value_closed_over_is_differentiated_by_the_outer_gradient():
    def outer(x):
        return rlx.sum(rlx.grad(lambda y: rlx.sum(y * y * x))(x))  # 2 x^2

    np.testing.assert_allclose(rlx.grad(outer)(X), 4 * X, **CLOSE)


@pytest.mark.parametrize(("order", "factor"), [(1, 4.0), (2, 12.0), (3, 24.0), (4, 24.0)])
def test_gradients_nest(order, factor):
    def power(x):
        return x**4

    derivative = power
    for _ in range(order):
        derivative = rlx.grad(derivative)
    np.testing.assert_allclose(derivative(np.float64(1.5)), factor * 1.5 ** (4 - order), **CLOSE)


COMPOSED = {
    "jit(grad)": (lambda f: rlx.jit(rlx.grad(f)), lambda x: 3 * x * x),
    "grad(jit)": (lambda f: rlx.grad(rlx.jit(f)), lambda x: 3 * x * x),
    "jit(grad(jit))": (lambda f: rlx.jit(rlx.grad(rlx.jit(f))), lambda x: 3 * x * x),
    "hessian": (rlx.hessian, lambda x: np.diag(6 * x)),
    "jacrev(grad)": (lambda f: rlx.jacrev(rlx.grad(f)), lambda x: np.diag(6 * x)),
    "jacfwd(grad)": (lambda f: rlx.jacfwd(rlx.grad(f)), lambda x: np.diag(6 * x)),
    "grad of sum of grad": (lambda f: rlx.grad(lambda x: rlx.sum(rlx.grad(f)(x))), lambda x: 6 * x),
    "vmap(grad) of a scalar": (lambda f: rlx.vmap(rlx.grad(lambda s: s**3)), lambda x: 3 * x * x),
    "grad of vmap": (lambda f: rlx.grad(lambda x: rlx.sum(rlx.vmap(lambda s: s**3)(x))), lambda x: 3 * x * x),
    "vmap(vmap)": (lambda f: lambda x: rlx.vmap(rlx.vmap(lambda s: s**3))(x[None])[0], lambda x: x**3),
}


@pytest.mark.parametrize(("compose", "expected"), COMPOSED.values(), ids=COMPOSED.keys())
def test_transformations_compose_in_any_order(compose, expected):
    np.testing.assert_allclose(compose(cubes)(X), expected(X), **CLOSE)


# ------------------------------------------------------------------------------------------ vjp and jvp


def both(x, y):
    return {"product": x * y, "positive": x > 0}


def test_vjp_pulls_cotangents_back():
    value, pullback = rlx.vjp(lambda x, y: {"p": x * y, "s": rlx.sum(x)}, X, V)
    np.testing.assert_allclose(value["p"], X * V, **CLOSE)
    dx, dy = pullback({"p": np.ones(3), "s": np.float64(10)})
    np.testing.assert_allclose(dx, V + 10, **CLOSE)
    np.testing.assert_allclose(dy, X, **CLOSE)


def test_vjp_refuses_cotangents_of_another_structure():
    _, pullback = rlx.vjp(lambda x: {"p": x, "q": x}, X)
    with pytest.raises(ShapeError, match="1 leaves, not 2") as caught:
        pullback({"p": X})
    assert "result.q" in str(caught.value)


def test_jvp_pushes_tangents_forward():
    value, tangent = rlx.jvp(both, (X, V), (np.ones(3), np.zeros(3)))
    np.testing.assert_allclose(value["product"], X * V, **CLOSE)
    np.testing.assert_allclose(tangent["product"], V, **CLOSE)
    assert tangent["positive"] is None
    with pytest.raises(ShapeError, match="1 leaves, not 2"):
        rlx.jvp(both, (X, V), (X,))


def test_tangents_of_another_shape_or_dtype_are_refused():
    with pytest.raises((ShapeError, DtypeError), match=r"3.*2|2.*3"):
        rlx.jvp(cubes, (X,), (np.ones(2),))
    with pytest.raises((ShapeError, DtypeError), match=r"f32.*f64|f64.*f32"):
        rlx.jvp(cubes, (X,), (np.ones(3, np.float32),))


def test_the_hessian_times_a_vector_needs_no_hessian():
    np.testing.assert_allclose(rlx.hvp(quadratic, (X,), (V,)), A @ V, **CLOSE)
    np.testing.assert_allclose(rlx.hvp(cubes, (X,), (V,)), 6 * X * V, **CLOSE)


@pytest.mark.parametrize("jacobian", [rlx.jacfwd, rlx.jacrev])
def test_jacobians_have_the_dims_of_the_result_and_then_of_the_argument(jacobian):
    np.testing.assert_allclose(jacobian(lambda x: A @ x)(X), A, **CLOSE)
    found = jacobian(lambda x: rlx.stack([x * 2, x * x]))(X)
    assert found.shape == (2, 3, 3)
    np.testing.assert_allclose(found[1], np.diag(2 * X), **CLOSE)
    by_leaf = jacobian(lambda t: t["a"] * t["b"])({"a": X, "b": 2 * X})
    np.testing.assert_allclose([by_leaf["a"], by_leaf["b"]], [np.diag(2 * X), np.diag(X)], **CLOSE)


# ----------------------------------------------------------------------------------------------- vmap


def test_mapping_is_a_loop_without_one():
    rows = np.stack([X, V, X + V])
    np.testing.assert_allclose(rlx.vmap(cubes)(rows), [(r**3).sum() for r in rows], **CLOSE)
    np.testing.assert_allclose(rlx.vmap(lambda a, b: a @ b, (0, None))(rows, A), rows @ A, **CLOSE)
    np.testing.assert_allclose(rlx.vmap(lambda r: r * 2, 1, -1)(rows), rows * 2, **CLOSE)
    np.testing.assert_allclose(rlx.vmap(lambda r: r * 2, -1, 0)(rows), (rows * 2).T, **CLOSE)


def test_axis_size_says_how_many_examples_there_are_where_no_argument_does():
    assert rlx.vmap(lambda: np.float32(2), axis_size=3)().tolist() == [2, 2, 2]
    assert rlx.vmap(lambda x: x + 1, in_axes=None, out_axes=1, axis_size=2)(np.zeros(3)).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"different sizes \(2, 3, the first of which is axis_size\)"):
        rlx.vmap(cubes, axis_size=2)(np.zeros((3, 4)))
    with pytest.raises(AxisError, match="no argument is mapped") as caught:
        rlx.vmap(cubes, in_axes=None)(X)
    assert "axis_size" in str(caught.value)


def test_stop_gradient_takes_pytrees():
    def loss(params):
        kept = rlx.stop_gradient(params)
        return rlx.sum(params["w"] * kept["w"]) + kept["rest"][0]

    gradient = rlx.grad(loss)({"w": X, "rest": (np.float64(2),)})
    np.testing.assert_array_equal(gradient["w"], X)
    assert gradient["rest"][0] == 0


def test_in_axes_may_be_a_tree_and_scalars_are_shared():
    rows = np.stack([X, V])
    found = rlx.vmap(lambda t, n: {"y": t["a"] * t["b"] * n}, ({"a": 0, "b": None}, None))({"a": rows, "b": X}, 3)
    np.testing.assert_allclose(found["y"], rows * X * 3, **CLOSE)


def test_the_gradient_for_each_example():
    def loss(w, x):
        return rlx.sum((w * x) ** 2)

    rows = np.stack([X, V])
    found = rlx.vmap(rlx.grad(loss), (None, 0))(X, rows)
    np.testing.assert_allclose(found, 2 * X * rows**2, **CLOSE)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: rlx.vmap(lambda a, b: a + b)(X, V[:2]), ShapeError, "different sizes \\(3, 2\\)"),
        (lambda: rlx.vmap(lambda a: a, None)(X), AxisError, "no argument is mapped"),
        (lambda: rlx.vmap(lambda a: a, 1)(X), AxisError, "axis 1"),
        (lambda: rlx.vmap(lambda a, b: a, (0,))(X, V), AxisError, "in_axes has 1 entries for 2 arguments"),
        (lambda: rlx.vmap(lambda a: a)(np.float64(1)), AxisError, "axis 0"),
        (lambda: rlx.vmap(lambda a: a, 0, None)(X), (AxisError, ShapeError), "out_axes|unbatched|mapped|None"),
        (lambda: rlx.vmap(lambda t: t["a"], ({"b": 0},))({"a": X}), ShapeError, "does not lie over"),
        (lambda: rlx.vmap(lambda a: a, "0")(X), AxisError, "'0' is neither an axis nor None"),
        (lambda: rlx.vmap(lambda a: (a, a), 0, (0, 0, 0))(X), ShapeError, "out_axes.*does not lie over"),
    ],
    ids=["sizes", "unmapped", "axis", "count", "scalar", "out", "tree", "text", "out tree"],
)
def test_what_cannot_be_mapped_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


# ---------------------------------------------------------------------------------------------- traces


def test_a_trace_is_a_graph_with_named_inputs():
    graph = rlx.trace(lambda params, x: params["w"] @ x, {"w": A}, rlx.spec("f64[3]"))

    assert list(graph.input_types) == ["params.w", "x"]
    np.testing.assert_allclose(rlx.interpret(graph, {"params.w": A, "x": X})[0], A @ X, **CLOSE)


def test_transformed_functions_are_traced_and_compiled_like_any():
    graph = rlx.trace(rlx.grad(cubes), rlx.spec("f64[n]"))
    np.testing.assert_allclose(rlx.interpret(graph, {"x": X})[0], 3 * X * X, **CLOSE)
    compiled = rlx.compile(rlx.grad(lambda w, x: rlx.sum(w * x * x), 1), X, rlx.spec("f64[n]"))
    np.testing.assert_allclose(compiled(V), 2 * X * V, **CLOSE)


def test_symbolic_sizes_go_through_every_transformation():
    def loss(w, x):
        return rlx.mean((x @ w) ** 2)

    compiled = rlx.compile(rlx.value_and_grad(loss), X, rlx.spec("f64[n, 3]"))
    for n in (1, 4):
        rows = np.arange(3.0 * n).reshape(n, 3)
        value, gradient = compiled(rows)
        np.testing.assert_allclose(value, ((rows @ X) ** 2).mean(), **CLOSE)
        np.testing.assert_allclose(gradient, 2 * rows.T @ (rows @ X) / n, **CLOSE)


@pytest.mark.medium
@pytest.mark.parametrize("transform", [rlx.jacfwd, rlx.jacrev, rlx.hessian])
def test_jacobians_of_unknown_sizes(transform):
    derivative = transform(lambda x: rlx.sum(x**3) if transform is rlx.hessian else x[1:] * rlx.sum(x[:-1] * x[:-1]))
    compiled = rlx.compile(derivative, rlx.spec("f64[n]"))
    for n in (0, 1, 4):
        x = np.arange(1.0, n + 1)
        np.testing.assert_allclose(compiled(x), derivative(x), **CLOSE)

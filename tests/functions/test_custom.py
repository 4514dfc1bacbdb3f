"""Derivatives that users state: the rule is what is used, under every transformation, and mistakes in it are named."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisError, ConfigError, DtypeError, MissingRuleError, ShapeError, TraceError
from rlx_core.ir.interpret import interpret
from rlx_core.transforms.trace import trace

X, V = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, -3.0])


def evaluate(function, *args):
    """The results of a function, traced and interpreted in float64."""
    traced = trace(function, args)
    fed = {leaf.name: a for leaf, a in zip(traced.leaves, args, strict=True) if leaf.role == "input"}
    return traced.results.unflatten(interpret(traced.graph, fed))


def tenfold_vjp():
    """`x²`, with a derivative of 10·x, so that it shows which rule was used."""
    square = rlx.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, g: (10 * x * g,))
    return square


def tenfold_jvp():
    square = rlx.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 10 * primals[0] * tangents[0]))
    return square


@pytest.fixture(params=[tenfold_vjp, tenfold_jvp], ids=["custom_vjp", "custom_jvp"])
def square(request):
    return request.param()


TRANSFORMED = {
    "grad": (lambda f, x: rlx.grad(lambda x: rlx.sum(f(x)))(x), 10 * X),
    "jit of grad": (lambda f, x: rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.jit(f)(x))))(x), 10 * X),
    "vmap of grad": (lambda f, x: rlx.vmap(rlx.grad(f))(x), 10 * X),
    "grad of vmap": (lambda f, x: rlx.grad(lambda x: rlx.sum(rlx.vmap(f)(x)))(x), 10 * X),
    "jvp": (lambda f, x: rlx.jvp(f, (x,), (V,))[1], 10 * X * V),
    "jacrev": (lambda f, x: rlx.jacrev(f)(x), np.diag(10 * X)),
    "jacfwd": (lambda f, x: rlx.jacfwd(f)(x), np.diag(10 * X)),
    "hessian": (lambda f, x: rlx.hessian(lambda x: rlx.sum(f(x)))(x), 10 * np.eye(3)),
    "the function itself": (lambda f, x: f(x), X * X),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_transformation_uses_the_rule(name, square):
    transform, wanted = TRANSFORMED[name]
    np.testing.assert_allclose(evaluate(functools.partial(transform, square), X), wanted, rtol=1e-14)


def test_a_compiled_gradient_has_no_trace_of_the_call(square):
    gradient = rlx.grad(lambda x: rlx.sum(rlx.exp(square(x))))
    x = X.astype(np.float32)
    np.testing.assert_allclose(gradient(x), 10 * x * np.exp(x * x), rtol=1e-5)
    assert "custom_fn" not in str(gradient.report)


def test_a_rule_may_call_its_function_which_is_then_differentiated_by_the_rule_again():
    @rlx.custom_vjp
    def f(x):
        return rlx.exp(x)

    f.defvjp(lambda x: (f(x), x), lambda x, g: (3 * g * f(x),))
    derivative = f
    for order in range(1, 6):
        derivative = rlx.grad(derivative)
        np.testing.assert_allclose(evaluate(derivative, np.float64(0.5)), 3**order * np.exp(0.5), rtol=1e-12)


def test_a_forward_rule_may_call_its_function_too():
    @rlx.custom_jvp
    def f(x, n):
        return x**n

    @f.defjvp
    def f_jvp(primals, tangents):
        x, n = primals
        return f(x, n), 7 * n * f(x, n) * tangents[0] / x

    first = evaluate(rlx.grad(lambda x: f(x, 3.0)), np.float64(2.0))
    second = evaluate(rlx.grad(rlx.grad(lambda x: f(x, 3.0))), np.float64(2.0))
    assert float(first) == 7 * 3 * 4.0
    assert float(second) == 21 * (21 - 1) * 2.0  # of 21·x³/x by the rule: (21·21 - 21)·x


def test_a_call_on_other_arguments_inside_the_rule_is_recorded_to_three_orders():
    @rlx.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * (f(x + 1) - f(x) - 1),))  # 2·x, said with f
    x = np.float64(0.7)
    once, twice = rlx.grad(f), rlx.grad(rlx.grad(f))
    assert [float(evaluate(d, x)) for d in (once, twice)] == pytest.approx([1.4, 2.0])
    assert float(evaluate(rlx.grad(twice), x)) == pytest.approx(0.0)
    with pytest.raises(MissingRuleError, match="f calls itself in its own rule"):
        evaluate(rlx.grad(rlx.grad(twice)), x)


def test_pytrees_settings_and_integers_go_through_a_rule():
    @functools.partial(rlx.custom_vjp, nondiff_argnums=(0,), nondiff_argnames="scale")
    def layer(activation, params, index, scale=2.0):
        return {"y": activation(params["w"]) * scale + params["b"], "count": index + 1}

    def forward(activation, params, index, scale):
        assert activation is rlx.tanh
        return layer(activation, params, index, scale), (params["w"], "kept")

    def backward(activation, scale, saved, g):
        w, word = saved
        assert word == "kept"
        assert g["count"].dtype == rlx.i64
        return {"w": g["y"] * w * scale * 100, "b": None}, None

    layer.defvjp(forward, backward)

    def loss(params, index):
        return rlx.sum(layer(rlx.tanh, params, index=index)["y"])

    found = evaluate(lambda w, b, i: rlx.grad(loss)({"w": w, "b": b}, i), X, V, np.int64(3))
    np.testing.assert_allclose(found["w"], 200 * X)
    np.testing.assert_array_equal(found["b"], 0)


def closing_over(x, c):
    f = rlx.custom_vjp(lambda x: x * c)
    f.defvjp(lambda x: (x * c, None), lambda _, g: (10 * g * c,))
    return rlx.sum(f(x))


def test_a_value_of_an_enclosing_function_may_be_used():
    np.testing.assert_allclose(evaluate(rlx.grad(closing_over), X, V), 10 * V)
    per_example = evaluate(
        lambda x, c: rlx.vmap(rlx.grad(closing_over), in_axes=(None, 0))(x, c), X, np.stack([V, 2 * V])
    )
    np.testing.assert_allclose(per_example, np.stack([10 * V, 20 * V]))


@pytest.mark.parametrize(
    "transform", [lambda x, c: rlx.grad(closing_over, 1)(x, c), lambda x, c: rlx.jvp(closing_over, (x, c), (x, c))]
)
def test_differentiating_by_a_value_that_the_rule_does_not_know_is_an_error(transform):
    with pytest.raises(MissingRuleError, match="uses a value of an enclosing function") as caught:
        evaluate(transform, X, V)
    assert "stop_gradient" in caught.value.hint
    assert any("test_custom.py" in str(fact.where) for fact in caught.value.facts)


def test_a_value_that_is_cut_off_may_be_used():
    found = evaluate(rlx.grad(lambda x, c: closing_over(x, rlx.stop_gradient(c)), (0, 1)), X, V)
    np.testing.assert_allclose(found[0], 10 * V)
    np.testing.assert_array_equal(found[1], 0)


def test_the_partial_rules_of_defjvps_are_added():
    f = rlx.custom_jvp(lambda x, y, z: rlx.sin(x) * y)
    f.defjvps(lambda t, y_, x, y, z: 10 * rlx.cos(x) * y * t, lambda t, y_, x, y, z: 100 * y_ / y * t, None)
    dx, dy, dz = evaluate(lambda x, y, z: rlx.grad(lambda *a: rlx.sum(f(*a)), (0, 1, 2))(x, y, z), X, V, V)
    np.testing.assert_allclose(dx, 10 * np.cos(X) * V)
    np.testing.assert_allclose(dy, 100 * np.sin(X))
    np.testing.assert_array_equal(dz, 0)


def forward(x, y):
    return x * y, (x, y)


def backward(saved, g):
    x, y = saved
    return g * y, g * x


MISTAKES = {
    "one cotangent": (forward, lambda saved, g: (g,), ShapeError, r"as a tuple of 2 \(x, y\), not 1 of them"),
    "no tuple": (forward, lambda saved, g: g, ShapeError, r"as a tuple of 2 \(x, y\), not Value"),
    "cotangent of other dims": (forward, lambda s, g: (rlx.sum(g), g), ShapeError, r"cotangent of x must be f64\[3\]"),
    "cotangent of another dtype": (
        forward,
        lambda s, g: (g, g.astype(rlx.f32)),
        DtypeError,
        r"cotangent of y must be f64\[3\], .* not f32\[3\]",
    ),
    "cotangent of another structure": (
        forward,
        lambda s, g: (g, (g, g)),
        ShapeError,
        "cotangent of y has another structure",
    ),
    "no pair": (
        lambda x, y: x * y,
        backward,
        ShapeError,
        "must return a pair, the result and what bwd needs, not Value",
    ),
    "three": (lambda x, y: (x * y, x, y), backward, ShapeError, "not 3 of them"),
    "another result": (lambda x, y: (rlx.sum(x), (x, y)), backward, ShapeError, r"its result must be f64\[3\]"),
    "other results": (lambda x, y: ((x, y), (x, y)), backward, ShapeError, "its result has another structure"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_rule_is_named_with_the_line_where_it_is(name):
    fwd, bwd, error, says = MISTAKES[name]

    @rlx.custom_vjp
    def product(x, y):
        return x * y

    product.defvjp(fwd, bwd)
    with pytest.raises(error, match=says) as caught:
        evaluate(rlx.grad(lambda x, y: rlx.sum(product(x, y))), X, V)
    assert "product" in caught.value.message
    assert any("test_custom.py" in f"{fact.value} {fact.where}" for fact in caught.value.facts)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (lambda p, t: p[0] * p[1], "must return a pair, the result and its tangent, not Value"),
        (lambda p, t: (p[0] * p[1], rlx.sum(t[0])), r"its tangent must be f64\[3\]"),
        (lambda p, t: (rlx.sum(p[0]), t[0]), r"its result must be f64\[3\]"),
    ],
)
def test_a_mistake_in_a_forward_rule_is_named_as_well(rule, says):
    product = rlx.custom_jvp(lambda x, y: x * y)
    product.defjvp(rule)
    with pytest.raises(ShapeError, match=says):
        evaluate(product, X, V)


def test_a_function_without_its_rule_says_how_to_give_it():
    for decorate, method in ((rlx.custom_vjp, "defvjp"), (rlx.custom_jvp, "defjvp")):
        with pytest.raises(MissingRuleError, match="given no derivative") as caught:
            decorate(lambda x: x)(X)
        assert method in caught.value.hint


def test_what_cannot_be_a_rule_is_refused_where_it_is_given():
    f = rlx.custom_vjp(lambda x, *, scale=1.0: x * scale)
    with pytest.raises(TraceError, match="takes functions, not int"):
        f.defvjp(3, backward)
    with pytest.raises(TraceError, match="custom_jvp: takes a function"):
        rlx.custom_jvp(3)
    f.defvjp(lambda x: (x, None), lambda _, g: (g,))
    with pytest.raises(TypeError, match="scale by keyword only"):
        evaluate(lambda x: f(x, scale=2.0), X)
    g = rlx.custom_jvp(lambda x: x, nondiff_argnums=1)
    with pytest.raises(ConfigError, match="use defjvp"):
        g.defjvps(None)
    g.defjvp(lambda n, p, t: (p[0], t[0]))
    with pytest.raises(AxisError, match="argument 1 of a call of lambda with 1 arguments"):
        evaluate(g, X)

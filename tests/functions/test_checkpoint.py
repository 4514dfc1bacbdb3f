"""Checkpoints: the same values and derivatives, less memory between the two evaluations, and what policies keep."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import checkpoint_policies as policies
from rlx_core.errors import ConfigError, TraceError
from rlx_core.ir.interpret import interpret
from rlx_core.transforms.graphs import live_nodes
from rlx_core.transforms.trace import trace

LAYERS, WIDTH, BATCH = 12, 32, 128
X = np.array([0.5, -1.0, 2.0])


def layer(params, x):
    hidden = rlx.checkpoint_name(rlx.tanh(x @ params["w"] + params["b"]), "hidden")
    return rlx.sin(rlx.exp(-hidden * hidden)) * hidden


def loss_with(layer):
    def loss(params, x):
        for each in params:
            x = layer(each, x)
        return rlx.mean(x * x)

    return rlx.value_and_grad(loss)


def evaluate(function, *args):
    traced = trace(function, args)
    fed = {leaf.name: a for leaf, a in zip(traced.leaves, args, strict=True) if leaf.role == "input"}
    return traced.results.unflatten(interpret(traced.graph, fed))


def arena(function) -> int:
    return function.executables[0].report.arena_nbytes


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    params = [
        {"w": rng.standard_normal((WIDTH, WIDTH)).astype("f4") / 6, "b": rng.standard_normal(WIDTH).astype("f4")}
        for _ in range(LAYERS)
    ]
    x = rng.standard_normal((BATCH, WIDTH)).astype("f4")
    plain = loss_with(layer)
    value, gradients = plain(params, x)
    return params, x, plain, value, gradients


@pytest.mark.medium
def test_a_deep_model_needs_less_memory_and_has_the_same_bits(model):
    params, x, plain, value, gradients = model
    again = loss_with(rlx.checkpoint(layer))
    value_again, gradients_again = again(params, x)
    assert arena(again) < arena(plain) / 2
    assert value.tobytes() == value_again.tobytes()
    for a, b in zip(gradients, gradients_again, strict=True):
        assert {k: v.tobytes() for k, v in a.items()} == {k: v.tobytes() for k, v in b.items()}


@pytest.mark.medium
def test_the_products_are_computed_again_unless_a_policy_keeps_them():
    def products(policy):
        layer = rlx.checkpoint(lambda x, w: rlx.tanh(rlx.tanh(x @ w) @ w), policy)
        gradient = rlx.value_and_grad(lambda w, x: rlx.sum(layer(x, w)))
        gradient(np.eye(3, dtype="f4"), np.ones((2, 3), "f4"))
        kernels = gradient.report.kernels
        return sum(count for (op, _, _), count in kernels.items() if "matmul" in op)

    assert (
        products(policies.nothing_saveable) > products(policies.dots_saveable) == products(policies.everything_saveable)
    )


def function(x, y):
    return rlx.sin(rlx.checkpoint_name(rlx.exp(x), "hidden") * y) * x


POLICIES = [
    None,
    policies.nothing_saveable,
    policies.everything_saveable,
    policies.dots_saveable,
    policies.save_only_these_names("hidden"),
    lambda node: node.op.name == "rlx.sin",
]

TRANSFORMED = {
    "grad": lambda f: lambda x, y: rlx.grad(lambda x, y: rlx.sum(f(x, y)), (0, 1))(x, y),
    "jvp": lambda f: lambda x, y: rlx.jvp(f, (x, y), (y, x)),
    "hessian": lambda f: lambda x, y: rlx.hessian(lambda x: rlx.sum(f(x, y)))(x),
    "vmap of grad": lambda f: lambda x, y: rlx.vmap(rlx.grad(f, 1))(x, y),
    "grad of vmap": lambda f: lambda x, y: rlx.grad(lambda x: rlx.sum(rlx.vmap(f)(x, y)))(x),
    "grad of grad": lambda f: lambda x, y: rlx.grad(lambda x: rlx.sum(rlx.grad(lambda y: rlx.sum(f(x, y)))(y)))(x),
    "nested": lambda f: lambda x, y: rlx.grad(lambda x: rlx.sum(rlx.checkpoint(lambda x: f(x, y) * x)(x)))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_policy_and_transformation_gives_what_the_function_gives(name):
    transform = TRANSFORMED[name]
    wanted = evaluate(transform(function), X, X + 1)
    for policy in POLICIES:
        found = evaluate(transform(rlx.checkpoint(function, policy)), X, X + 1)
        for a, b in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_what_is_kept_is_not_computed_again():
    def count(policy):
        both = rlx.value_and_grad(lambda x: rlx.sum(rlx.checkpoint(function, policy)(x, x)))
        graph = rlx.trace(both, rlx.spec("f32[3]"))
        live = live_nodes(graph.nodes, graph.outputs)
        inside = [n.op.body.nodes for n in live if n.op.name == "rlx.checkpoint"]
        return sum(n.op.name == "rlx.exp" for nodes in (live, *inside) for n in nodes)

    assert count(policies.nothing_saveable) == 2
    assert count(policies.save_only_these_names("hidden")) == 1
    assert count(policies.save_only_these_names("other")) == 2


def test_pytrees_python_scalars_and_closures_go_through():
    def f(x, scale):
        inner = rlx.checkpoint(lambda tree, power: {"y": tree["a"] ** power * scale, "n": tree["n"] + 1})
        found = inner({"a": x, "n": 3}, power=2)
        assert found["n"].dtype == rlx.i64
        return rlx.sum(found["y"])

    dx, dscale = evaluate(rlx.grad(f, (0, 1)), X, X)
    np.testing.assert_allclose(dx, 2 * X * X)
    np.testing.assert_allclose(dscale, X * X)


def test_what_is_no_function_and_no_policy_is_refused():
    with pytest.raises(TraceError, match="checkpoint: takes a function"):
        rlx.checkpoint(3)
    with pytest.raises(ConfigError, match="policy is 'dots'"):
        rlx.checkpoint(rlx.sin, policy="dots")


CONTROL = {
    "cond": lambda x: rlx.cond(x > 0, lambda x: x, lambda x: 2 * x, x),
    "while_loop": lambda x: rlx.while_loop(lambda x: x < 3, lambda x: 2 * x, x, max_steps=4),
    "scan": lambda x: rlx.scan(lambda i, _: (i + 1, x * i), 0, None, length=3)[1],
}


@pytest.mark.parametrize("control", CONTROL)
def test_a_function_that_ignores_its_argument_has_derivative_0_behind_control_flow(control):
    constant = rlx.checkpoint(lambda x: rlx.asarray(3.0))
    assert rlx.grad(lambda x: constant(CONTROL[control](x)))(np.float32(1)) == 0

"""Models of libraries for JAX: their classes are pytrees of rlx too."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx

jax = pytest.importorskip("jax", reason="python -m pip install jax")
jnp = jax.numpy

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Line:
    slope: Any
    offset: Any
    power: int = dataclasses.field(default=1, metadata={"static": True})


class Wrapped:
    """A node whose children JAX knows by number alone."""

    def __init__(self, inner: Any, scale: Any) -> None:
        self.inner, self.scale = inner, scale


jax.tree_util.register_pytree_node(Wrapped, lambda w: ((w.inner, w.scale), None), lambda _, both: Wrapped(*both))


def predict(model: Wrapped, x: Any) -> Line:
    line = model.inner["line"]
    return Line(model.scale * (line.slope * x) ** line.power, line.offset + 0 * x, line.power)


def test_registered_classes_are_parameters_inputs_and_results() -> None:
    given = Wrapped({"line": Line(np.float32(2), np.ones(3, np.float32), 2)}, np.float32(0.5))
    model = rlx.from_jax(predict, given, rlx.spec("f32[n, 3]"))
    found, expected = model(X), predict(given, X)
    assert (type(found), found.power) == (Line, 2)
    np.testing.assert_allclose(found.slope, expected.slope, rtol=1e-6)
    np.testing.assert_allclose(found.offset, expected.offset)
    fed = rlx.from_jax(
        lambda line, x: line.slope * x + line.offset, Line(rlx.spec("f32[]"), rlx.spec("f32[3]")), rlx.spec("f32[n, 3]")
    )
    np.testing.assert_allclose(fed(Line(np.float32(2), np.ones(3, np.float32)), X), 2 * X + 1, rtol=1e-6)


@pytest.mark.medium
def test_gradients_have_the_class() -> None:
    given = Line(np.float32(2), np.ones(3, np.float32), 2)
    model = rlx.from_jax(
        lambda line, x: ((line.slope * x) ** line.power + line.offset).sum(), given, rlx.spec("f32[n, 3]")
    )
    found = rlx.grad(lambda p: model.function(p, X))(model.parameters)["line"]
    expected = jax.grad(lambda line: ((line.slope * X) ** line.power + line.offset).sum())(given)
    assert (type(found), found.power) == (Line, 2)
    np.testing.assert_allclose(found.slope, expected.slope, rtol=1e-5)
    np.testing.assert_allclose(found.offset, expected.offset, rtol=1e-5)


def test_leaves_that_are_no_numbers_are_part_of_the_program() -> None:
    given = {"w": np.float32(3), "function": jnp.tanh, "is_shifted": True, "none": None}

    def run(params: Any, x: Any) -> Any:
        assert params["none"] is None
        return params["function"](params["w"] * x) + (1 if params["is_shifted"] else 0)

    model = rlx.from_jax(run, given, rlx.spec("f32[n]"))
    np.testing.assert_allclose(model(X[0]), np.tanh(3 * X[0]) + 1, rtol=1e-6)
    assert model.parameters["params"]["function"] is None


@pytest.mark.slow
def test_a_model_of_equinox() -> None:
    eqx = pytest.importorskip("equinox", reason="python -m pip install equinox")
    mlp = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))
    model = rlx.from_jax(lambda net, x: jax.vmap(net)(x), mlp, rlx.spec("f32[n, 3]"))
    np.testing.assert_allclose(model(X), jax.vmap(mlp)(X), rtol=1e-5, atol=1e-6)
    gradient = rlx.grad(lambda p: rlx.sum(model.function(p, X) ** 2))(model.parameters)["net"]
    expected = eqx.filter_grad(lambda net: (jax.vmap(net)(X) ** 2).sum())(mlp)
    assert type(gradient) is type(mlp)
    for layer, other in zip(gradient.layers, expected.layers, strict=True):
        np.testing.assert_allclose(layer.weight, other.weight, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.bias, other.bias, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_model_of_flax() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="python -m pip install flax")

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first, self.second = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)
            self.norm = nnx.LayerNorm(8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.gelu(self.norm(self.first(x))))

    net = Net(nnx.Rngs(0))
    graph, state = nnx.split(net)
    model = rlx.from_jax(lambda state, x: nnx.merge(graph, state)(x), state, rlx.spec("f32[n, 3]"))
    np.testing.assert_allclose(model(X), net(X), rtol=1e-5, atol=1e-6)

"""rlx functions inside of JAX programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn

jax = pytest.importorskip("jax", reason="python -m pip install jax")
jnp = jax.numpy

X = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(3, 2)).astype(np.float32)


def ours(w: Any, x: Any) -> Any:
    return nn.softmax(rlx.tanh(x @ w))


def theirs(w: Any, x: Any) -> Any:
    return jax.nn.softmax(jnp.tanh(x @ w))


@pytest.fixture
def function() -> Any:
    from rlx_jax import as_jax

    return as_jax(ours)


@pytest.mark.medium
def test_it_is_called_inside_of_jit(function) -> None:
    found = jax.jit(lambda w, x: 2 * function(w, x))(W, X)
    np.testing.assert_allclose(found, 2 * theirs(W, X), rtol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("order", [1, 2])
def test_it_has_derivatives(function, order) -> None:
    def loss(f: Any) -> Any:
        total = lambda w: (f(w, X) ** 2).sum()  # noqa: E731
        return total if order == 1 else lambda w: (jax.grad(total)(w) ** 2).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss(function)))(W), jax.grad(loss(theirs))(W), rtol=1e-3, atol=1e-5)


@pytest.mark.medium
def test_it_is_batched(function) -> None:
    both = jnp.stack([X, X + 1])
    np.testing.assert_allclose(jax.vmap(function, (None, 0))(W, both), jax.vmap(theirs, (None, 0))(W, both), rtol=1e-5)
    gradient = jax.vmap(jax.grad(lambda w, x: function(w, x)[:, 0].sum()), (None, 0))
    expected = jax.vmap(jax.grad(lambda w, x: theirs(w, x)[:, 0].sum()), (None, 0))
    np.testing.assert_allclose(gradient(W, both), expected(W, both), rtol=1e-4, atol=1e-6)


def test_results_keep_their_structure() -> None:
    from rlx_jax import as_jax

    found = jax.jit(as_jax(lambda p: {"sum": p["a"] + p["b"], "parts": [p["a"]]}))(
        {"a": jnp.ones(2), "b": jnp.zeros(2)}
    )
    assert found["sum"].tolist() == found["parts"][0].tolist() == [1, 1]

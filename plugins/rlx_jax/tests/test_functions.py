"""`from_jax`: whole functions, their parameters, sizes, rules, keys, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, UnsupportedError

jax = pytest.importorskip("jax", reason="python -m pip install jax")
jnp = jax.numpy


def mlp(params: Any, x: Any) -> Any:
    hidden = jax.nn.gelu(x @ params["w1"] + params["b1"])
    return jax.nn.log_softmax(hidden @ params["w2"])


@pytest.fixture
def params() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).normal
    return {
        "w1": draw(size=(8, 16)).astype(np.float32),
        "b1": draw(size=16).astype(np.float32),
        "w2": draw(size=(16, 4)).astype(np.float32),
    }


X = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)


@pytest.mark.medium
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_one_model_serves_all_sizes(params, rows) -> None:
    model = rlx.from_jax(mlp, params, rlx.spec("f32[batch, 8]"))
    np.testing.assert_allclose(model(X[:rows]), mlp(params, X[:rows]), rtol=1e-5, atol=1e-6)
    assert model.name == "mlp"
    assert list(model.inputs) == ["x"]


@pytest.mark.medium
def test_it_trains_as_in_jax(params) -> None:
    model = rlx.from_jax(mlp, params, rlx.spec("f32[batch, 8]"))
    labels = np.arange(5) % 4

    def loss(p: Any) -> Any:
        return -rlx.mean(rlx.take_along_axis(model.function(p, X), labels[:, None], axis=1))

    def loss_of_jax(p: Any) -> Any:
        return -jnp.take_along_axis(mlp(p, X), labels[:, None], axis=1).mean()

    expected = jax.grad(loss_of_jax)(params)
    found = rlx.grad(loss)(model.parameters)["params"]
    for name in params:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6)


def test_sizes_are_values() -> None:
    model = rlx.from_jax(lambda x: (x.sum(0) / x.shape[0], jnp.arange(x.shape[0])), rlx.spec("f32[n, 2]"))
    mean, places = model(X[:3, :2])
    np.testing.assert_allclose(mean, X[:3, :2].mean(0), rtol=1e-6)
    assert places.tolist() == [0, 1, 2]


def test_sizes_that_depend_on_each_other() -> None:
    model = rlx.from_jax(
        lambda x, y: jnp.concatenate([y, x, x]).reshape(-1, 2), rlx.spec("f32[n]"), rlx.spec("f32[2*n]")
    )
    np.testing.assert_array_equal(model(np.float32([5]), np.float32([3, 4])), [[3, 4], [5, 5]])


def test_results_keep_their_structure() -> None:
    model = rlx.from_jax(lambda x: {"a": (x + 1, [x * 2]), "b": None}, rlx.spec("f32[]"))
    assert model(np.float32(3)) == {"a": (4, [6]), "b": None}


def test_rules_that_their_authors_state_are_kept() -> None:
    @jax.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (7 * g * kept[1], 11 * g))

    @jax.custom_jvp
    def h(x):
        return jnp.sin(x)

    h.defjvp(lambda primals, tangents: (h(*primals), 3 * tangents[0]))
    model = rlx.from_jax(lambda x, y: h(f(x, y)), rlx.spec("f32[]"), rlx.spec("f32[]"))
    args = np.float32(0.5), np.float32(2)
    np.testing.assert_allclose(
        rlx.grad(lambda x, y: model.function({}, x, y), argnums=(0, 1))(*args), (42, 33), rtol=1e-6
    )
    np.testing.assert_allclose(model(*args), np.sin(np.float32(1)), rtol=1e-6)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.normal(key, (3, 2)),
        lambda key: jax.random.randint(key, (5,), 0, 100),
        lambda key: jax.random.bernoulli(key, 0.3, (7,)),
        lambda key: jax.random.permutation(key, 6),
        lambda key: jax.random.categorical(key, jnp.zeros((4, 3))),
        lambda key: [jax.random.uniform(k) for k in jax.random.split(jax.random.fold_in(key, 3), 3)],
        lambda key: jax.vmap(lambda k: jax.random.uniform(k, (2,)))(jax.random.split(key, 4)),
        lambda key: jax.random.bits(key, (5,), "uint8"),
        lambda key: jax.random.key_data(key),
    ],
)
def test_draws_are_the_same_numbers(draw) -> None:
    key = jax.random.key(42)
    model = rlx.from_jax(lambda key, x: (draw(key), x), key, rlx.spec("f32[]"))
    found, _ = model(np.float32(0))
    for x, y in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(jax.jit(draw)(key)), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-6)


def test_seeds_inside_of_the_function() -> None:
    def function(seed):
        return jax.random.uniform(jax.random.key(seed), (3,))

    model = rlx.from_jax(function, rlx.spec("i32[]"))
    np.testing.assert_array_equal(model(np.int32(5)), function(5))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eigenvalues_and_vectors_of_any_matrix(dtype) -> None:
    a = (np.arange(9).reshape(3, 3) % 5 + np.diag([1, 2, 9])).astype(dtype)

    def function(a):
        return jnp.linalg.eigvals(a), *jax.lax.linalg.eig(a)

    values, again, left, right = rlx.from_jax(function, rlx.spec(f"{dtype.__name__}[3, 3]"))(a)
    np.testing.assert_allclose(np.sort_complex(values), np.sort_complex(function(a)[0]), rtol=1e-4)
    np.testing.assert_array_equal(values, again)
    np.testing.assert_allclose(a @ right, right * values, atol=1e-4)
    np.testing.assert_allclose(left.conj().T @ a, values[:, None] * left.conj().T, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(left, axis=0), 1, rtol=1e-5)


def test_everything_that_is_missing_is_named_with_its_line() -> None:
    def function(x):
        jax.debug.callback(print, x)
        return jax.lax.psum(x, ()) + jax.lax.linalg.hessenberg(jnp.diag(x))[0] + jax.lax.linalg.schur(jnp.diag(x))[0]

    with pytest.raises(UnsupportedError, match=r"not supported: .*hessenberg.*schur") as caught:
        rlx.from_jax(function, rlx.spec("f32[3]"))
    assert "test_functions.py" in str(caught.value)


def test_what_has_no_inputs_is_refused(params) -> None:
    with pytest.raises(ConfigError, match="mlp has no inputs"):
        rlx.from_jax(mlp, params, X)
    with pytest.raises(ConfigError, match="argument params mixes arrays and specs"):
        rlx.from_jax(mlp, params | {"w1": rlx.spec("f32[8, 16]")}, rlx.spec("f32[1, 8]"))


def test_elements_that_jax_would_make_narrower_are_refused() -> None:
    with pytest.raises(DtypeError, match=r"x is f64\[3\], and JAX computes with float32 instead"):
        rlx.from_jax(jnp.sin, rlx.spec("f64[3]"))


def test_it_is_saved_without_jax(params, tmp_path) -> None:
    rlx.save(tmp_path / "m.rlx", rlx.from_jax(mlp, params, rlx.spec("f32[batch, 8]")))
    np.testing.assert_allclose(rlx.load(tmp_path / "m.rlx")(X), mlp(params, X), rtol=1e-5, atol=1e-6)

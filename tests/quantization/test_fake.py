"""Fake quantisation: values, states and declared derivatives, in both modes; PyTorch's functions are in tests/oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.quantization import dequantize_linear, fake_quantize, learned_scale_quantize, quantize_linear

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
G = RNG.standard_normal(X.shape)
T = RNG.standard_normal(X.shape)
AXES = [None, 0, -1, (0, 2)]


def spread(scale: Any, axis: Any) -> np.ndarray:
    """A scale with an axis for each of X."""
    kept = {a % X.ndim for a in ([] if axis is None else [axis] if isinstance(axis, int) else axis)}
    return np.reshape(scale, [n if i in kept else 1 for i, n in enumerate(X.shape)])


def measured(x: np.ndarray, axis: Any, limit: int) -> np.ndarray:
    kept = {a % x.ndim for a in ([] if axis is None else [axis] if isinstance(axis, int) else axis)}
    return np.maximum(np.abs(x).max(tuple(i for i in range(x.ndim) if i not in kept)) / limit, 1e-12)


FACTORS: dict[str, Any] = {
    "identity": lambda x, s, q: np.ones_like(x),
    "clipped": lambda x, s, q: (np.abs(x) <= q * s).astype(float),
    "tanh": lambda x, s, q: 1 - np.tanh(x / s) ** 2,
    "hard_tanh": lambda x, s, q: np.maximum(0, 1 - np.abs(x / (q * s))),
}


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_scale_of_a_batch_gives_its_largest_element_the_largest_code(bits: int, axis: Any) -> None:
    limit = 2 ** (bits - 1) - 1
    y, scale, state = fake_quantize(X, bits=bits, axis=axis)
    assert state is None
    np.testing.assert_allclose(scale, measured(X, axis, limit), rtol=1e-15)
    steps = spread(scale, axis)
    assert np.array_equal(y, np.rint(np.clip(X / steps, -limit, limit)) * steps)
    narrow = fake_quantize(X.astype(np.float16), bits=bits, axis=axis)
    assert (narrow[0].dtype, narrow[1].dtype) == (np.float16, np.float32)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("estimator", FACTORS)
def test_derivatives_are_the_declared_ones_with_the_scale_of_the_forward_pass(estimator: str, axis: Any) -> None:
    """The scale of the state is far from that of x, so that elements saturate."""
    state = measured(X, axis, 7) * 0.4

    def f(x: Any) -> Any:
        return fake_quantize(x, state, bits=4, axis=axis, mode="fixed", straight_through=estimator)[0]

    factor = FACTORS[estimator](X, spread(state, axis), 7)
    assert 0 < (np.abs(X) > 7 * spread(state, axis)).mean() < 1
    np.testing.assert_allclose(rlx.vjp(f, X)[1](G)[0], G * factor, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(rlx.jvp(f, (X,), (T,))[1], T * factor, rtol=1e-12, atol=1e-15)
    d_state = rlx.grad(lambda s: rlx.sum(fake_quantize(X, s, bits=4, axis=axis, mode="fixed")[0]))(state)
    assert not np.asarray(d_state).any()


def test_the_second_derivative_is_that_of_the_factor() -> None:
    def slope(x: Any) -> Any:
        return rlx.sum(rlx.grad(lambda x: rlx.sum(fake_quantize(x, 0.7, mode="fixed", straight_through="tanh")[0]))(x))

    bent = np.tanh(X / 0.7)
    np.testing.assert_allclose(rlx.grad(slope)(X), -2 * bent * (1 - bent**2) / 0.7, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_an_average_moves_in_training_only_and_as_a_result_only(axis: Any) -> None:
    now = measured(X, axis, 127)
    _, scale, first = fake_quantize(X, axis=axis, mode="average")
    assert np.array_equal(scale, first)
    np.testing.assert_allclose(first, now, rtol=1e-15)
    state = np.asarray(now * 5)
    _, scale, second = fake_quantize(X, state, axis=axis, mode="average", decay=0.75)
    np.testing.assert_allclose(second, 0.75 * state + 0.25 * now, rtol=1e-15)
    assert np.array_equal(scale, second)
    assert np.array_equal(state, now * 5)
    unstarted = fake_quantize(X, np.zeros_like(state), axis=axis, mode="average")[2]
    np.testing.assert_allclose(unstarted, now, rtol=1e-15)
    for _ in range(2):
        y, scale, third = fake_quantize(X, state, axis=axis, mode="average", is_training=False)
        assert np.array_equal(scale, state)
        assert np.array_equal(third, state)
    assert np.array_equal(y, fake_quantize(X, state, axis=axis, mode="fixed")[0])


def test_special_elements() -> None:
    x = np.float32([np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, 9])
    for call in (fake_quantize, rlx.jit(fake_quantize, static_argnames=("mode", "bits", "straight_through"))):
        y = call(x, np.float32(1), mode="fixed", bits=3)[0]
        np.testing.assert_array_equal(y, np.float32([np.nan, 3, -3, 0, 2, 2, 3]))
    zeros, scale, _ = fake_quantize(np.zeros(3, np.float32))
    assert zeros.tolist() == [0, 0, 0]
    assert float(scale) == np.float32(1e-12)
    assert np.isnan(fake_quantize(x)[0]).all()
    y, scale, _ = fake_quantize(np.zeros((0, 2), np.float32), axis=1)
    assert y.shape == (0, 2)
    assert scale.tolist() == [np.float32(1e-12)] * 2
    slopes = rlx.vjp(lambda x: fake_quantize(x, 1.0, mode="fixed", bits=3, straight_through="clipped")[0], x)[1]
    np.testing.assert_array_equal(slopes(np.ones_like(x))[0], np.float32([np.nan, 0, 0, 1, 1, 1, 0]))


def test_its_values_are_those_of_codes_and_back() -> None:
    x = X.astype(np.float32)
    y, scale, _ = fake_quantize(x, axis=1)
    assert np.array_equal(dequantize_linear(quantize_linear(x, scale, axis=1), scale, axis=1), y)


@pytest.mark.parametrize("axis", [None, 0, 1], ids=str)
def test_every_row_of_a_batch_has_its_own_statistics(axis: Any) -> None:
    batched = rlx.vmap(lambda x: fake_quantize(x, axis=axis, straight_through="tanh"))(X)
    for i, row in enumerate(X):
        for a, b in zip(batched[:2], fake_quantize(row, axis=axis)[:2], strict=True):
            assert np.array_equal(a[i], b)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("grad_scale", [True, False])
def test_a_learned_scale_has_the_derivatives_of_its_paper(axis: Any, grad_scale: bool) -> None:
    scale = np.asarray(measured(X, axis, 7) * 0.4)

    def f(x: Any, scale: Any) -> Any:
        return learned_scale_quantize(x, scale, bits=4, axis=axis, grad_scale=grad_scale)

    steps = spread(scale, axis)
    z = X / steps
    inside = np.abs(z) <= 7
    assert 0 < inside.mean() < 1
    np.testing.assert_array_equal(f(X, scale), np.rint(np.clip(z, -7, 7)) * steps)
    gain = 1 / np.sqrt(X.size // scale.size * 7) if grad_scale else 1
    psi = np.where(inside, np.rint(z) - z, np.sign(z) * 7)
    d_x, d_scale = rlx.vjp(f, X, scale)[1](G)
    np.testing.assert_array_equal(d_x, G * inside)
    others = tuple(i for i, n in enumerate(steps.shape) if n == 1)
    np.testing.assert_allclose(d_scale, gain * np.sum(G * psi, others).reshape(scale.shape), rtol=1e-11)
    t_scale = np.asarray(RNG.standard_normal(scale.shape))
    tangent = rlx.jvp(f, (X, scale), (T, t_scale))[1]
    np.testing.assert_allclose(tangent, inside * T + gain * psi * spread(t_scale, axis), rtol=1e-11, atol=1e-14)
    sized = rlx.compile(
        f, rlx.spec("f64[a, b, c]"), rlx.spec(f"f64[{', '.join('abc'[i] for i in range(3) if i not in others)}]")
    )
    assert np.array_equal(sized(X, scale), f(X, scale))


def test_the_scale_of_elements_inside_the_range_has_the_slope_of_its_differences() -> None:
    """Outside of the range y is `±q·scale`, a smooth function of the scale: there the derivative is the true one."""
    x, scale = np.float64([9, -9, 12]), 0.5
    slope = rlx.grad(lambda s: rlx.sum(learned_scale_quantize(x, s, bits=4, grad_scale=False) ** 2))(scale)
    up, down = (np.sum(np.asarray(learned_scale_quantize(x, scale + e, bits=4)) ** 2) for e in (1e-6, -1e-6))
    assert float(slope) == pytest.approx((up - down) / 2e-6, rel=1e-8)


def test_a_scale_below_the_smallest_has_no_gradient() -> None:
    d_scale = rlx.grad(lambda s: rlx.sum(learned_scale_quantize(np.float32([1, 2]), s)))(np.float32(-1))
    assert float(d_scale) == 0


def test_a_learned_scale_differs_for_each_row_of_a_batch() -> None:
    scales = np.float64([0.1, 0.2, 0.3])
    batched = rlx.vmap(rlx.grad(lambda x, s: rlx.sum(learned_scale_quantize(x, s, bits=3) ** 2), argnums=(0, 1)))
    found = batched(X, scales)
    for i in range(3):
        row = rlx.grad(lambda x, s: rlx.sum(learned_scale_quantize(x, s, bits=3) ** 2), argnums=(0, 1))(X[i], scales[i])
        np.testing.assert_allclose(found[0][i], row[0], rtol=1e-12)
        np.testing.assert_allclose(found[1][i], row[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: fake_quantize(np.int32([1])), DtypeError, "floats"),
        (lambda: fake_quantize(X, bits=1), ConfigError, "bits"),
        (lambda: fake_quantize(X, bits=17), ConfigError, "bits"),
        (lambda: fake_quantize(X, straight_through="ste"), ConfigError, "straight_through"),
        (lambda: fake_quantize(X, mode="ema"), ConfigError, "mode"),
        (lambda: fake_quantize(X, mode="fixed"), ConfigError, "needs a state"),
        (lambda: fake_quantize(X, mode="average", is_training=False), ConfigError, "needs a state"),
        (lambda: fake_quantize(X, decay=1.5), ConfigError, "decay"),
        (lambda: fake_quantize(X, np.ones(2), mode="average"), ShapeError, "state"),
        (lambda: fake_quantize(X, np.ones(3), axis=1, mode="fixed"), ShapeError, "state"),
        (lambda: learned_scale_quantize(X, np.ones(3)), ShapeError, "scale"),
        (lambda: learned_scale_quantize(np.int32([1]), 1.0), DtypeError, "floats"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()

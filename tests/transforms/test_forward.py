"""Recognition before differentiation: programs in primitives get the derivatives of the ops that they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import UnknownNameError

OFF = {"fusion": {"enabled": False}}
RNG = np.random.default_rng(1)
BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 3, 5, 7, 4
SHAPES = [(BATCH, HEADS, n, FEATURES) for n in (QUERIES, KEYS, KEYS)] + [(1, HEADS, QUERIES, KEYS)]
Q, K, V, BIAS = DATA = [RNG.standard_normal(s) for s in SHAPES]
SEEN = RNG.random((BATCH, 1, QUERIES, KEYS)) > 0.4
SEEN[..., 0] = True


def softmax(x: Any) -> Any:
    e = rlx.exp(x - rlx.max(x, axis=-1, keepdims=True))
    return e / rlx.sum(e, axis=-1, keepdims=True)


def scores(q: Any, k: Any) -> Any:
    return q @ rlx.permute_dims(k, (0, 1, 3, 2)) * 0.5


def mean_square(x: Any) -> Any:
    return rlx.mean(x * x, axis=-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    shifted = x - rlx.max(x, axis=-1, keepdims=True)
    return shifted - rlx.log(rlx.sum(rlx.exp(shifted), axis=-1, keepdims=True))


LABELS = RNG.integers(0, FEATURES, (BATCH * HEADS * QUERIES, 1))
CROSS_ENTROPY = "softmax_cross_entropy_with_logits"
READINGS: dict[str, Callable[[Any], Any]] = {
    "along the axis": lambda x: rlx.take_along_axis(log_softmax(x), LABELS, axis=1),
    "at an index": lambda x: rlx.log(softmax(x))[np.arange(len(LABELS)), LABELS[:, 0]],
    "under one-hot rows": lambda x: -rlx.sum((rlx.arange(FEATURES) == LABELS) * log_softmax(x), axis=-1),
    "from the normaliser": lambda x: rlx.log(rlx.sum(rlx.exp(x), axis=-1)) - x[np.arange(len(LABELS)), LABELS[:, 0]],
}

PROGRAMS: dict[str, tuple[Callable[..., Any], str]] = {
    "attention": (lambda q, k, v, b: softmax(scores(q, k)) @ v, "attention"),
    "attention with a cap": (lambda q, k, v, b: softmax(rlx.tanh(scores(q, k) / 5.0) * 5.0) @ v, "attention"),
    "attention with a bias": (lambda q, k, v, b: softmax(scores(q, k) + b) @ v, "attention"),
    "attention with a mask": (lambda q, k, v, b: softmax(rlx.where(SEEN, scores(q, k), -np.inf)) @ v, "attention"),
    "attention with a finite fill": (lambda q, k, v, b: softmax(rlx.where(SEEN, scores(q, k), -1e9)) @ v, "attention"),
    "softmax": (lambda q, k, v, b: softmax(q * b[0, 0, 0, 0]) * v[:, :, :QUERIES], "softmax"),
    "rms norm": (lambda q, k, v, b: q / rlx.sqrt(mean_square(q) + 1e-5) * k[0, 0, 0], "rms_norm"),
    "gelu": (lambda q, k, v, b: 0.5 * q * (1 + rlx.erf(q / np.sqrt(2.0))), "gelu"),
    **{
        f"cross-entropy {name}": (lambda q, k, v, b, f=f: f(rlx.reshape(q, (-1, FEATURES))), CROSS_ENTROPY)
        for name, f in READINGS.items()
    },
}


def loss_of(name: str) -> Callable[..., Any]:
    return lambda *x: rlx.sum(rlx.sin(PROGRAMS[name][0](*x)))


def ops_of(function: Callable[..., Any]) -> list[str]:
    return [n.op.name.removeprefix("rlx.") for n in rlx.trace(function, *DATA).nodes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_derivative_is_that_of_what_is_recognised(name: str) -> None:
    both = rlx.value_and_grad(loss_of(name), argnums=(0, 1, 2, 3))
    assert PROGRAMS[name][1] in ops_of(lambda *x: both(*x))


@pytest.mark.medium
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_those_of_the_primitives(name: str) -> None:
    """Float64, sums of at most 420 terms near 1 in another order: 420·2⁻⁵³ and a few operations more."""
    both = rlx.value_and_grad(loss_of(name), argnums=(0, 1, 2, 3))
    on, off = rlx.jit(lambda *x: both(*x))(*DATA), rlx.jit(lambda *x: both(*x), config=OFF)(*DATA)
    np.testing.assert_allclose(on[0], off[0], rtol=1e-12)
    for a, b in zip(on[1], off[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    loss = rlx.jit(lambda *x: loss_of(name)(*x))
    gradients = rlx.grad(loss_of(name), argnums=(0, 1, 2, 3))(*DATA)
    step = 1e-5
    along = [np.random.default_rng(2).standard_normal(s) for s in SHAPES]
    up, down = (loss(*(x + sign * step * d for x, d in zip(DATA, along, strict=True))) for sign in (1, -1))
    slope = sum(np.vdot(g, d) for g, d in zip(gradients, along, strict=True))
    # h²/6 of a third derivative along 420 directions, below 1e5, and 1e-16·|loss| / h of cancellation.
    np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_agree_with_those_of_the_primitives(name: str) -> None:
    def product(*x: Any) -> Any:
        return rlx.grad(lambda q: rlx.sum(rlx.sin(rlx.grad(loss_of(name))(q, *x[1:]))))(x[0])

    on, off = rlx.jit(product)(*DATA), rlx.jit(lambda *x: product(*x), config=OFF)(*DATA)
    np.testing.assert_allclose(on, off, rtol=1e-9, atol=1e-11)  # as above, twice


@pytest.mark.medium
def test_an_intermediate_that_is_returned_keeps_the_pattern_apart() -> None:
    def loss(q: Any, k: Any, v: Any, b: Any) -> Any:
        weights = softmax(scores(q, k))
        return rlx.sum(weights @ v), weights

    both = rlx.value_and_grad(loss, has_aux=True)
    found = ops_of(lambda *x: both(*x))
    assert "attention" not in found
    assert "softmax" in found
    on, off = rlx.jit(lambda *x: both(*x))(*DATA), rlx.jit(lambda *x: both(*x), config=OFF)(*DATA)
    np.testing.assert_allclose(on[0][1], off[0][1], rtol=1e-13)
    np.testing.assert_allclose(on[1], off[1], rtol=1e-10, atol=1e-13)


@pytest.mark.medium
def test_a_pullback_and_its_values_are_of_one_program() -> None:
    def step(q: Any, k: Any, v: Any, b: Any) -> Any:
        value, pull = rlx.vjp(PROGRAMS["attention"][0], q, k, v, b)
        return value, pull(value)[:3]

    compiled = rlx.jit(step)
    on, off = compiled(*DATA), rlx.jit(lambda *x: step(*x), config=OFF)(*DATA)
    steps = [s.node.op.name for s in compiled.executables[0].lir.steps]
    assert steps.count("rlx.attention") == steps.count("rlx.attention_backward") == 1
    for a, b in zip((on[0], *on[1]), (off[0], *off[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_a_pipeline_without_the_list_differentiates_what_was_written() -> None:
    lists = {"hir": ["lower-hir"], "mir": ["legalize", "dead-code"]}
    both = rlx.value_and_grad(loss_of("attention"))
    plain = rlx.jit(lambda *x: both(*x), config={"use": "mine", "pipeline": {"mine": lists}})
    plain(*DATA)
    assert not any("attention" in s.node.op.name for s in plain.executables[0].lir.steps)


def test_a_wrong_list_is_an_error_when_something_is_differentiated() -> None:
    lists = {"forward": ["recognise-sotfmax"], "hir": ["lower-hir"], "mir": ["legalize", "dead-code"]}
    config = {"use": "mine", "pipeline": {"mine": lists}}
    with pytest.raises(UnknownNameError, match="recognise-sotfmax"):
        rlx.jit(lambda *x: rlx.grad(loss_of("softmax"))(*x), config=config)(*DATA)

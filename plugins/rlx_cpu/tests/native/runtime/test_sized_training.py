"""Steps of training of which neither batch nor length is known: a size that is new compiles nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sized import code_of

import rlx_core as rlx
from rlx_core import nn

WORDS, FEATURES, HEADS = 37, 24, 3
RNG = np.random.default_rng(3)

SIZES = ((2, 17), (33, 61), (5, 9), (3, 40), (7, 23), (40, 50))
"""Batch and length; all but the second are too few positions for their sums to be cut into chunks, and the last."""

KNOWN = 2
"""How many of them come before nothing may be compiled."""


def drawn(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


WEIGHTS = {
    "words": drawn(WORDS, FEATURES),
    "places": drawn(64, FEATURES),
    "gain": drawn(FEATURES),
    "shift": drawn(FEATURES),
    "qkv": drawn(FEATURES, 3 * FEATURES),
    "out": drawn(FEATURES, FEATURES),
    "up": drawn(FEATURES, 50),
    "bias": drawn(50),
    "down": drawn(50, WORDS),
}


def loss(*arguments: Any) -> Any:
    """Of a transformer of one layer."""
    words, places, gain, shift, qkv, out, up, bias, down, x, y = arguments
    h = rlx.take(words, x, axis=0) + places[: x.shape[1]]
    z = nn.layer_norm(h, gain, shift) @ qkv
    q, k, v = (z[..., i * FEATURES : (i + 1) * FEATURES] for i in range(3))
    h = h + nn.attention(q, k, v, num_heads=HEADS, is_causal=True) @ out
    logits = nn.gelu(nn.linear(h, up, bias)) @ down
    return nn.cross_entropy(rlx.reshape(logits, (-1, WORDS)), rlx.reshape(y, (-1,)))


def step(*arguments: Any) -> Any:
    weights = arguments[: len(WEIGHTS)]
    gradients = rlx.grad(loss, tuple(range(len(WEIGHTS))))(*arguments)
    return tuple(w - 0.5 * g for w, g in zip(weights, gradients, strict=True))


@pytest.mark.slow
def test_a_step_of_a_transformer_is_for_all_sizes(compiled: list[int]) -> None:
    weights = list(WEIGHTS.values())
    types = [rlx.spec(f"f32{list(w.shape)}") for w in weights]
    function = rlx.compile(step, *types, rlx.spec("i64[b, n]"), rlx.spec("i64[b, n]"), target="cpu")
    for number, shape in enumerate(SIZES):
        x, y = (RNG.integers(0, WORDS, shape) for _ in range(2))
        compiled.clear()
        found = [np.array(w) for w in function(*weights, x, y)]
        assert number < KNOWN or not compiled, f"{shape} compiles {compiled}"
        code = code_of(function)
        assert code.for_all == frozenset(code.steps)
        known = [rlx.spec(f"i64{list(shape)}")] * 2
        wanted = rlx.compile(step, *types, *known, target="cpu")(*weights, x, y)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

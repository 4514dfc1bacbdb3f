"""Layers that go through a sequence, beside PyTorch's own and beside the same recurrence with `lax.scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlx_core import nn

from ..rows import WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

LONG = {"slack": 256, "why": "errors of a step are carried into the next", "dtypes": WIDE}


def sequences(gates: int, states: int) -> Any:
    def cases(d: Draw) -> Any:
        n, t, features, hidden = d.size(1, 3), d.size(1, 6), d.size(1, 4), d.size(1, 4)
        weights = d.floats((features, gates * hidden), -0.7, 0.7), d.floats((hidden, gates * hidden), -0.7, 0.7)
        biases = [d.floats((gates * hidden,)) for _ in range(2)]
        return (d.normal((n, t, features)), *weights, *biases, *(d.floats((n, hidden)) for _ in range(states))), {}

    return cases


def torch_lstm(x: Any, w: Any, u: Any, b: Any, b_hidden: Any, h: Any, c: Any) -> Any:
    y, h, c = torch.lstm(x, (h[None], c[None]), (w.T, u.T, b, b_hidden), True, 1, 0.0, False, False, True)
    return y, (h[0], c[0])


def torch_gru(x: Any, w: Any, u: Any, b: Any, b_hidden: Any, h: Any) -> Any:
    y, h = torch.gru(x, h[None], (w.T, u.T, b, b_hidden), True, 1, 0.0, False, False, True)
    return y, h[0]


def jax_lstm(x: Any, w: Any, u: Any, b: Any, b_hidden: Any, h: Any, c: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b + b_hidden, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    state, ys = lax.scan(step, (h, c), x.swapaxes(0, 1))
    return ys.swapaxes(0, 1), state


def jax_gru(x: Any, w: Any, u: Any, b: Any, b_hidden: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        r, z, n = jnp.split(x @ w + b, 3, -1)
        own_r, own_z, own_n = jnp.split(h @ u + b_hidden, 3, -1)
        z = jax.nn.sigmoid(z + own_z)
        h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + own_r) * own_n) + z * h
        return h, h

    state, ys = lax.scan(step, h, x.swapaxes(0, 1))
    return ys.swapaxes(0, 1), state


def attended(d: Draw) -> Any:
    n, s, keys, h, size = d.size(1, 2), d.size(1, 5), d.size(1, 5), d.size(1, 3), d.choice([2, 4])
    is_causal = d.choice([False, True])
    keys = s if is_causal else keys
    return (d.normal((n, h, s, size)), d.normal((n, h, keys, size)), d.normal((n, h, keys, size))), {
        "is_causal": is_causal
    }


def shared_heads(d: Draw) -> Any:
    n, s, kv, each, size = d.size(1, 2), d.size(1, 5), d.size(1, 2), d.size(2, 3), 4
    return (d.normal((n, kv * each, s, size)), d.normal((n, kv, s, size)), d.normal((n, kv, s, size))), {}


def torch_attention(*args: Any, **attributes: Any) -> Any:
    with sdpa_kernel(SDPBackend.MATH):  # the other one has no forward mode
        return torch.nn.functional.scaled_dot_product_attention(*args, **attributes)


def jax_attention(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=is_causal).swapaxes(1, 2)


def selected(d: Draw) -> Any:
    n, t, c, s = d.size(1, 2), d.size(1, 5), d.size(1, 3), d.size(1, 3)
    args = d.normal((n, t, c)), d.floats((n, t, c), 0.1, 1.0), d.floats((c, s), -1.5, -0.2)
    return (*args, d.normal((n, t, s)), d.normal((n, t, s))), {}


def jax_selective(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    def step(state: Any, each: Any) -> Any:
        x, delta, b, c = each
        state = jnp.exp(delta[..., None] * a) * state + (delta * x)[..., None] * b[:, None, :]
        return state, (state * c[:, None, :]).sum(-1)

    first = jnp.zeros((x.shape[0], *a.shape), x.dtype)
    state, ys = lax.scan(step, first, tuple(v.swapaxes(0, 1) for v in (x, delta, b, c)))
    return ys.swapaxes(0, 1), state


def rotated(x: Any, xp: Any) -> Any:
    """Feature i beside feature i + half, by the angle p·100^(-2i/d)."""
    half = x.shape[-1] // 2
    angles = xp.arange(x.shape[1], dtype=xp.float64)[:, None] * 100.0 ** (-xp.arange(half, dtype=xp.float64) / half)
    c, s = xp.cos(angles)[:, None, :], xp.sin(angles)[:, None, :]
    return xp.concatenate([x[..., :half] * c - x[..., half:] * s, x[..., half:] * c + x[..., :half] * s], -1)


FAMILY = Family(
    "Sequences",
    [
        Row(
            "lstm",
            lambda x, w, u, b, b_hidden, h, c: nn.lstm(x, w, u, b + b_hidden, state=(h, c)),
            sequences(4, 2),
            torch_lstm,
            jax_lstm,
            asks=("dtype", "forward", "gradient", "jvp", "batch", "second"),
            note="weights are `[in, 4·hidden]`, and there is one bias, the sum of PyTorch's two",
            **LONG,
        ),
        Row(
            "gru",
            lambda x, w, u, b, b_hidden, h: nn.gru(x, w, u, b, b_hidden, state=h),
            sequences(3, 1),
            torch_gru,
            jax_gru,
            note="weights are `[in, 3·hidden]`",
            **LONG,
        ),
        Row("selective_scan", nn.selective_scan, selected, None, jax_selective, note="Mamba's recurrence", **LONG),
        Row(
            "attention",
            lambda q, k, v, **a: nn.attention(q, k, v, layout="bhsd", **a),
            attended,
            lambda q, k, v, *, is_causal: torch_attention(q, k, v, is_causal=is_causal),
            jax_attention,
            slack=64,
            why="two products and a softmax",
            inexact={"jax": (1e-6, "JAX computes the softmax of the scores in float32")},
        ),
        Row(
            "attention with fewer heads of keys",
            lambda q, k, v: nn.attention(q, k, v, layout="bhsd"),
            shared_heads,
            lambda q, k, v: torch_attention(q, k, v, enable_gqa=True),
            lambda q, k, v: jax_attention(q, k, v, is_causal=False),
            slack=64,
            why="two products and a softmax",
            inexact={"jax": (1e-6, "JAX computes the softmax of the scores in float32")},
        ),
        Row(
            "rope(theta=100)",
            lambda x: nn.rope(x, theta=100.0, layout="bshd"),
            lambda d: ((d.normal((d.size(1, 2), d.size(1, 6), d.size(1, 3), 2 * d.size(1, 3))),), {}),
            lambda x: rotated(x, torch),
            lambda x: rotated(x, jnp),
            asks=("forward", "gradient", "jvp", "batch"),
            note="by formula: neither has a function for it",
        ),
    ],
)

"""Programs that a device is tried with, one for each kind of kernel; they need no test runner."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def attend(x: Any) -> Any:
    """Two heads of four features with causal attention."""
    q = x[None]
    return nn.attention(q, q * 0.5, q + 1.0, num_heads=2, is_causal=True)


PROGRAMS = {
    "product": lambda x, i: nn.gelu(x @ x.T + 1.0),
    "norm": lambda x, i: nn.layer_norm(nn.gelu(x * 2), x[0], x[1]),
    "sums": lambda x, i: rlx.stack([rlx.sum(x), rlx.sum(rlx.max(x, axis=0))]),
    "sort": lambda x, i: rlx.sort(x, axis=1),
    "first-of-equals": lambda x, i: rlx.argmax(rlx.round(x), axis=1),
    "running": lambda x, i: rlx.cumulative_sum(x, axis=0),
    "search": lambda x, i: rlx.searchsorted(rlx.sort(x[0]), x),
    "attention": lambda x, i: attend(x),
    "attention-backward": lambda x, i: rlx.grad(lambda t: rlx.sum(attend(t) ** 2))(x),
    "scatter": lambda x, i: rlx.grad(lambda t: rlx.sum(rlx.take(t, i, axis=0) ** 2))(x),
    "loop": lambda x, i: rlx.scan(lambda c, row: (rlx.tanh(c + row), c * row), x[0], x)[1],
    "while": lambda x, i: rlx.while_loop(lambda c: rlx.max(c) < 9.0, lambda c: c * 1.5 + 1.0, rlx.abs(x)),
    "choice": lambda x, i: rlx.cond(rlx.sum(x) > 1.0, rlx.exp, rlx.sin, x),
    "drawn": lambda x, i: x + rlx.random.normal(rlx.random.key(3), (6, 8)),
    "fourier": lambda x, i: rlx.real(rlx.fft.fft(x, axis=0)),
    "moved": lambda x, i: rlx.concat([rlx.flip(x, axis=1), x[:, 1:]], axis=1),
}
"""One for each kind of kernel that a device has."""

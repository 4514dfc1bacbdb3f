"""Operands of a concatenation or a padding, each written where it lies in the result by the kernel that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.ir.lir import placement
from rlx_core.ir.strides import is_dense
from rlx_core.ir.verify_lir import verify_lir
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])
RNG = np.random.default_rng(0)


def attention(q: Any, k: Any, v: Any) -> Any:
    return nn.attention(q, k, v, num_heads=2, is_causal=True)


def gradients(x: Any, w: Any, g: Any) -> Any:
    """The gradient of a shared projection: dq, dk and dv side by side before one product."""
    _, pull = rlx.vjp(lambda x: attention(*rlx.split(x @ w, 3, axis=-1)), x)
    return pull(g)[0]


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x[..., :32], x[..., 32:]
    turned = rlx.concat([first * cos - second * sin, first * sin + second * cos], axis=-1)
    return turned @ rlx.permute_dims(turned, (0, 2, 1))


def shape(*sizes: int) -> np.ndarray:
    return (RNG.standard_normal(sizes) / 8).astype(np.float32)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "attention backward": (gradients, (shape(2, 9, 48), shape(48, 96), shape(2, 9, 32))),
    "attention": (
        lambda q, k, v, g: rlx.exp(rlx.concat([attention(q, k, v), attention(v, q, k)], axis=-1)) @ g,
        (*(shape(2, 9, 32) for _ in range(3)), shape(64, 3)),
    ),
    "products": (
        lambda x, a, b, c, r: rlx.exp(
            rlx.concat([x @ a, rlx.where(r > 0, x @ b, r), nn.linear(x, c, c[0], activation="gelu")], axis=-1)
        ).sum(axis=-1),
        (shape(3, 7, 20), shape(20, 32), shape(20, 64), shape(20, 96), shape(3, 7, 64)),
    ),
    "a product in blocks": (
        lambda x, a, b: rlx.exp(rlx.concat([x @ a, x @ b], axis=1)).sum(axis=0),
        (shape(5, 2300), shape(2300, 32), shape(2300, 64)),
    ),
    "loops": (rotated, (shape(2, 5, 64), shape(5, 32), shape(5, 32))),
    "norms and softmax": (
        lambda x, g: rlx.concat([nn.rms_norm(x, g), nn.softmax(x), nn.layer_norm(x)], axis=1) @ g,
        (shape(4, 3, 32), shape(32)),
    ),
    "sums": (
        lambda x: rlx.exp(rlx.concat([x.sum(axis=1), x.max(axis=1) - 1.0], axis=1)).sum(axis=-1),
        (shape(4, 50, 96),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("of", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_joined_is_written_where_it_belongs(name: str, of: str, threads: int) -> None:
    function, arrays = PROGRAMS[name]
    data = [rlx.astype(a, of) for a in arrays]
    options = {"cpu.threads": threads}
    fast = rlx.jit(function, host=HOST, target="cpu", config={"options": options})
    guarded = rlx.jit(function, host=HOST, target="cpu", config={"options": {**options, "cpu.poison": True}})
    apart = rlx.jit(
        lambda *x: function(*x), host=HOST, target="cpu", config={"options": {**options, "cpu.tier": "numpy"}}
    )
    found = fast(*data)
    lir = fast.executables[0].lir
    assert verify_lir(lir) == []
    assert "rlx.concat" not in [s.node.op.name for s in lir.steps]
    assert any(not is_dense(v.type, placement(v, lir.aliases).strides) for s in lir.steps for v in s.node.results)
    np.testing.assert_array_equal(found, guarded(*data))
    unit = {"f32": 2.0**-24, "bf16": 2.0**-8, "f64": 2.0**-53}[of]
    wanted = np.asarray(apart(*data), np.float64)
    # Another order of sums of at most 2300 products, and roundings of 16 bits in between.
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=0, atol=64 * unit * np.abs(wanted).max())


def residual_blocks(x: Any, first: Any, second: Any, third: Any) -> Any:
    """A product of windows, one with a residual and a pool of what it gives: each writes into the padding of the next."""
    h = nn.relu(nn.conv(x, first, padding=1))
    h = nn.relu(nn.conv(h, second, padding=1) + h)
    return nn.max_pool(
        nn.conv(nn.relu(nn.conv(h, third, padding=(1, 2), stride=(1, 2))), first[:, :16], padding=1), 3, 1, 1
    )


def inverted(x: Any, wide: Any, deep: Any, narrow: Any) -> Any:
    """One-cell products around a depthwise convolution."""
    h = nn.relu(nn.conv(x, wide))
    return x + nn.conv(nn.relu(nn.conv(h, deep, padding=1, groups=32)), narrow)


PADDED: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], int]] = {
    "residual blocks": (
        residual_blocks, (shape(3, 16, 9, 13), shape(16, 16, 3, 3), shape(16, 16, 3, 3), shape(16, 16, 3, 3)), 4,
    ),
    "inverted": (inverted, (shape(2, 16, 10, 14), shape(32, 16, 1, 1), shape(32, 1, 3, 3), shape(16, 32, 1, 1)), 1),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_padded_is_written_where_it_belongs(name: str, threads: int) -> None:
    """As many paddings are steps that write a border alone as can be, with the bits of a plan in which all are copies."""
    function, data, count = PADDED[name]

    def ran(**more: Any) -> tuple[np.ndarray, int]:
        made = rlx.jit(lambda *x: function(*x), host=HOST, target="cpu", config={"options": options, **more})
        found, lir = made(*data), made.executables[0].lir
        assert verify_lir(lir) == []
        return np.asarray(found), sum(bool(lir.parts_in(step.node)) for step in lir.steps)

    options = {"cpu.threads": threads}
    found, inside = ran()
    copied, outside = ran(memory={"alignment": 4096})  # at a multiple of which no part lies
    guarded, _ = ran(options={**options, "cpu.poison": True})
    assert (inside, outside) == (count, 0)
    np.testing.assert_array_equal(found, copied)
    np.testing.assert_array_equal(found, guarded)

"""A small encoder in the shape of MiniLM, stored in halves, from the public door to native code, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.ir.dtypes import dtype
from rlx_core.plugins import PluginHost
from rlx_core.testing.yardstick import yardstick

HOST = PluginHost([rlx_cpu.plugin])
BATCH, LENGTH, WIDTH, HEADS, LAYERS = 2, 11, 48, 4, 2


def encoder(params: dict[str, Any], ids: Any, mask: Any) -> Any:
    """Embeddings, post-norm layers of attention and a GELU network, and the mean over the tokens that there are."""
    h = nn.layer_norm(rlx.take(params["words"], ids, axis=0) + params["positions"], params["g"], params["b"])
    hidden = rlx.expand_dims(rlx.expand_dims(mask, axis=1), axis=1)
    for i in range(LAYERS):
        q, k, v = (h @ params[f"{n}{i}"] + params[f"{n}b{i}"] for n in "qkv")
        context = rlx.attention(q, k, v, mask=hidden, num_heads=HEADS)
        h = nn.layer_norm(h + (context @ params[f"o{i}"] + params[f"ob{i}"]), params["g"], params["b"])
        inner = nn.gelu(h @ params[f"up{i}"] + params[f"upb{i}"])
        h = nn.layer_norm(h + (inner @ params[f"down{i}"] + params[f"downb{i}"]), params["g"], params["b"])
    shown = rlx.expand_dims(rlx.astype(mask, h.dtype), axis=2)
    return rlx.sum(h * shown, axis=1) / rlx.sum(shown, axis=1)


def weights(of: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "words": (100, WIDTH),
        "positions": (LENGTH, WIDTH),
        "g": (WIDTH,),
        "b": (WIDTH,),
    }
    for i in range(LAYERS):
        for n in "qkvo":
            shapes |= {f"{n}{i}": (WIDTH, WIDTH), f"{n}b{i}": (WIDTH,)}
        shapes |= {f"up{i}": (WIDTH, 4 * WIDTH), f"upb{i}": (4 * WIDTH,)}
        shapes |= {f"down{i}": (4 * WIDTH, WIDTH), f"downb{i}": (WIDTH,)}
    made = {n: rng.standard_normal(s) / (np.sqrt(s[0]) if len(s) == 2 else 1) for n, s in shapes.items()}
    return {n: a.astype(of) for n, a in made.items()}


@pytest.mark.medium
@pytest.mark.parametrize("of", ["bf16", "f16"])
def test_an_encoder_in_halves_is_as_good_as_halves_are(of: str) -> None:
    """Everything native, and no further from float64 than the same program's own roundings."""
    params = weights(dtype(of).numpy)
    rng = np.random.default_rng(1)
    ids, mask = rng.integers(0, 100, (BATCH, LENGTH)), np.ones((BATCH, LENGTH), bool)
    mask[1, 7:] = False
    graph = rlx.trace(encoder, params, ids, mask)
    inputs = (f"i64[{BATCH}, {LENGTH}]", f"bool[{BATCH}, {LENGTH}]")
    fast = rlx.compile(encoder, params, *map(rlx.spec, inputs), host=HOST, target="cpu")

    assert [kernel for _, kernel, _ in fast.report.kernels if not kernel.startswith("native_")] == []
    arrays = {**{f"params.{n}": a for n, a in params.items()}, "ids": ids, "mask": mask}
    assert yardstick(graph, arrays).complaint([np.asarray(fast(ids, mask))]) is None

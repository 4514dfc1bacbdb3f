"""One step of training, as one program: loss, gradients and the SGD update, with the parameters donated.

`mlp-train` is a classifier 784-512-512-10 on 128 images; `gpt-train` four causal transformer layers of 256 features with 8
heads, on 8 sequences of 128 tokens out of 1024, the output tied to the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn

RATE = 1e-4
VOCABULARY, FEATURES, HEADS, HIDDEN, LAYERS, LENGTH, BATCH = 1024, 256, 8, 1024, 4, 128, 8

Params = dict[str, Any]


def mlp_data() -> Data:
    rng = np.random.default_rng(0)
    sizes = (784, 512, 512, 10)
    params: Params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"w{i}"] = (rng.standard_normal((fan_in, fan_out)) / math.sqrt(fan_in)).astype(np.float32)
        params[f"b{i}"] = np.zeros(fan_out, np.float32)
    x = rng.standard_normal((128, 784)).astype(np.float32)
    return {"params": params, "x": x, "y": rng.integers(0, 10, 128)}


def gpt_data(layers: int = LAYERS) -> Data:
    rng = np.random.default_rng(0)
    d, f = FEATURES, HIDDEN
    params: Params = {
        "embedding": rng.standard_normal((VOCABULARY, d)) * 0.02,
        "positions": rng.standard_normal((LENGTH, d)) * 0.02,
        "norm": np.ones(d),
    }
    for i in range(layers):
        params |= {f"qkv{i}": rng.standard_normal((d, 3 * d)) * 0.05, f"out{i}": rng.standard_normal((d, d)) * 0.05}
        params |= {f"up{i}": rng.standard_normal((d, f)) * 0.05, f"down{i}": rng.standard_normal((f, d)) * 0.05}
        params |= {f"norm_a{i}": np.ones(d), f"norm_b{i}": np.ones(d)}
    params = {name: value.astype(np.float32) for name, value in params.items()}
    x, y = (rng.integers(0, VOCABULARY, (BATCH, LENGTH)) for _ in range(2))
    return {"params": params, "x": x, "y": y}


def mlp_loss(params: Params, x: Any, y: Any) -> Any:
    for i in range(3):
        x = nn.linear(x, params[f"w{i}"], params[f"b{i}"], activation="relu" if i < 2 else None)
    return nn.cross_entropy(x, y)


def gpt_loss(params: Params, x: Any, y: Any) -> Any:
    h = nn.embedding(x, params["embedding"]) + params["positions"]
    for i in range(sum(name.startswith("qkv") for name in params)):
        q, k, v = rlx.split(nn.rms_norm(h, params[f"norm_a{i}"], eps=1e-5) @ params[f"qkv{i}"], 3, axis=-1)
        h = h + nn.attention(q, k, v, num_heads=HEADS, is_causal=True) @ params[f"out{i}"]
        inner = nn.gelu(nn.rms_norm(h, params[f"norm_b{i}"], eps=1e-5) @ params[f"up{i}"])
        h = h + inner @ params[f"down{i}"]
    logits = nn.rms_norm(h, params["norm"], eps=1e-5) @ params["embedding"].T
    return nn.cross_entropy(logits, y)


def rlx_program(loss: Callable[..., Any]) -> Callable[[Data], Program]:
    def make(data: Data) -> Program:
        def step(params: Params, x: Any, y: Any) -> tuple[Any, Params]:
            value, grads = rlx.value_and_grad(loss)(params, x, y)
            return value, {name: params[name] - RATE * grads[name] for name in params}

        compiled = rlx.jit(step, donate=("params",))
        x, y = data["x"], data["y"]
        state = copied(data["params"])

        def run() -> None:
            nonlocal state
            _, state = compiled(state, x, y)

        def results() -> list[Any]:
            value, params = compiled(copied(data["params"]), x, y)
            return [value, *(params[name] for name in sorted(params))]

        return Program(run, results)

    return make


def copied(params: Params) -> Params:
    return {name: value.copy() for name, value in params.items()}


# A step moves weights by 1e-4 of gradients below 1, so weights agree to float32; a loss is a mean of 1024 logarithms.
CASES = (
    Case("gpt-train", "gpt", gpt_data, rlx_program(gpt_loss), rtol=1e-4, atol=2e-6, aim=0.50),
    Case("mlp-train", "mlp", mlp_data, rlx_program(mlp_loss), rtol=1e-4, atol=2e-6, aim=0.60),
)

"""Whole programs on the native tier: inference, training and decoding with caches leave no step to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from benchmarks.cases import training
from examples import minilm
from rlx_core import nn
from rlx_core.ops.dynamic import dynamic_update_slice
from rlx_core.plugins import PluginHost

pytest.importorskip("llvmlite", reason="it is about native code: llvmlite is not installed")

from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])
CONFIG = {"layer_norm_eps": 1e-12, "num_attention_heads": 4, "num_hidden_layers": 2}

Program = tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]
"""A function, its arguments, and those that are donated."""


def numbers(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.1).astype(np.float32)


def training_step(loss: Callable[..., Any], data: dict[str, Any]) -> Program:
    def step(params: Any, x: Any, y: Any) -> tuple[Any, Any]:
        value, grads = rlx.value_and_grad(loss)(params, x, y)
        return value, {name: params[name] - training.RATE * grads[name] for name in params}

    return step, (training.copied(data["params"]), data["x"], data["y"]), ("params",)


def gpt(patch: pytest.MonkeyPatch) -> Program:
    sizes = {"VOCABULARY": 50, "FEATURES": 32, "HEADS": 4, "HIDDEN": 48, "LAYERS": 2, "LENGTH": 12, "BATCH": 2}
    for name, size in sizes.items():
        patch.setattr(training, name, size)
    return training_step(training.gpt_loss, training.gpt_data())


def mlp(patch: pytest.MonkeyPatch) -> Program:
    return training_step(training.mlp_loss, training.mlp_data())


def sentences(patch: pytest.MonkeyPatch) -> Program:
    features, hidden = 32, 64
    weights = {
        "embeddings.word_embeddings.weight": numbers(100, features),
        "embeddings.position_embeddings.weight": numbers(16, features),
        "embeddings.token_type_embeddings.weight": numbers(2, features),
    }
    norms = ["embeddings.LayerNorm"]
    products: dict[str, tuple[int, int]] = {}
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        products |= {f"{layer}.attention.self.{n}": (features, features) for n in ("query", "key", "value")}
        products[f"{layer}.attention.output.dense"] = (features, features)
        products |= {
            f"{layer}.intermediate.dense": (hidden, features),
            f"{layer}.output.dense": (features, hidden),
        }
    for name in norms:
        weights |= {f"{name}.weight": 1 + numbers(features), f"{name}.bias": numbers(features)}
    for name, shape in products.items():
        weights |= {f"{name}.weight": numbers(*shape), f"{name}.bias": numbers(shape[0])}

    def embed(weights: Any, ids: Any, mask: Any) -> Any:
        return minilm.encode(weights, ids, mask, CONFIG)

    ids = np.random.default_rng(0).integers(0, 100, (2, 9))
    return embed, (weights, ids, np.ones((2, 9), np.float32)), ()


def decoding(patch: pytest.MonkeyPatch) -> Program:
    """One token: rotated queries and keys, caches appended to in place, the likeliest next token."""
    heads, size, length, vocabulary = 4, 8, 16, 50
    features = heads * size

    def step(params: Any, cache: Any, token: Any, at: Any) -> tuple[Any, Any]:
        h = nn.embedding(token, params["embedding"])
        q, k, v = rlx.split(nn.rms_norm(h, params["norm"]) @ params["qkv"], 3, axis=-1)
        turned = [
            nn.rope(x, params["cos"], params["sin"], rlx.reshape(at, (1, 1)), head_dim=size, layout="bsd")
            for x in (q, k)
        ]
        zero = np.array(0)
        cache = {name: dynamic_update_slice(cache[name], x, zero, at, zero) for name, x in (("k", turned[1]), ("v", v))}
        is_past = rlx.reshape(rlx.arange(length) <= at, (1, length))
        h = h + nn.attention(turned[0], cache["k"], cache["v"], mask=is_past, num_heads=heads) @ params["out"]
        return rlx.argmax(h @ params["embedding"].T, axis=-1), cache

    params = {
        "embedding": numbers(vocabulary, features),
        "norm": 1 + numbers(features),
        "qkv": numbers(features, 3 * features),
        "out": numbers(features, features),
        "cos": np.cos(numbers(length, size // 2)),
        "sin": np.sin(numbers(length, size // 2)),
    }
    cache = {name: np.zeros((1, length, features), np.float32) for name in ("k", "v")}
    return step, (params, cache, np.array([[7]]), np.array(3)), ("cache",)


EVERY_PROGRAM = pytest.mark.parametrize("program", [gpt, mlp, sentences, decoding], ids=lambda p: p.__name__)


@pytest.mark.medium
@EVERY_PROGRAM
def test_every_step_is_native(program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments, donated = program(monkeypatch)
    compiled = rlx.jit(function, donate=donated, host=HOST, target="cpu")
    with everything_is_shared():  # so that the test below finds the code that it needs
        compiled(*arguments)
    (executable,) = compiled.executables

    left = [f"{s.kernel}({s.node.op.name})" for s in executable.lir.steps if not s.kernel.startswith("native_")]
    assert left == []


@pytest.mark.medium
@EVERY_PROGRAM
def test_every_program_keeps_to_its_own_memory(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits are those of a plain run where freed memory is NaN and canaries lie between all slots, on one thread and on three."""
    function, arguments, donated = program(monkeypatch)

    def bits(**options: Any) -> list[bytes]:
        compiled = rlx.jit(function, donate=donated, host=HOST, target="cpu", config={"options": options})
        found = []
        for _ in range(2):  # the second run starts from what the first one left in the arena
            fed = optree.tree_map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, arguments)
            found += [np.asarray(x).tobytes() for x in optree.tree_leaves(compiled(*fed))]
        return found

    with everything_is_shared():
        plain = bits(**{"cpu.threads": 1})
        for threads in (1, 3):
            assert bits(**{"cpu.poison": True, "cpu.threads": threads}) == plain

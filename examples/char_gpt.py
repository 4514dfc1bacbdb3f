"""Train a small GPT on characters of Python's own zen, and let it write.

One program has the forward pass, the loss, its gradients and AdamW's update; parameters and state are donated to it. Another
writes a character, and updates the keys and values of those before it in place.

    python examples/char_gpt.py
"""

from __future__ import annotations

import codecs
import contextlib
import io
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn, optim

with contextlib.redirect_stdout(io.StringIO()):  # importing it prints it
    import this

TEXT = codecs.decode(this.s, "rot13")
ALPHABET = sorted(set(TEXT))
IDS = np.array([ALPHABET.index(c) for c in TEXT])

LENGTH, FEATURES, HEADS, LAYERS, BATCH, STEPS = 64, 96, 4, 2, 16, 500
HEAD = FEATURES // HEADS

ANGLES = np.arange(1024)[:, None] * 1e-3 ** np.linspace(0, 1, HEAD // 2)
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)

Params = dict[str, Any]
Cache = list[tuple[Any, Any]]
"""Keys and values of the last `LENGTH` places of each layer."""


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    d = FEATURES

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.08).astype(np.float32)

    layer = {"norm_a": (d,), "qkv": (d, 3 * d), "out": (d, d), "norm_b": (d,), "up": (d, 4 * d), "down": (4 * d, d)}
    return {
        "embedding": weights(len(ALPHABET), d),
        "layers": [
            {n: np.ones(s, np.float32) if len(s) == 1 else weights(*s) for n, s in layer.items()} for _ in range(LAYERS)
        ],
        "norm": np.ones(d, np.float32),
    }


def turned(x: Any, places: Any = None) -> Any:
    """Rotate the features of each head by an angle proportional to the position, so that attention sees relative positions."""
    return nn.rope(x, COS, SIN, places, head_dim=HEAD)


def layer_of(layer: Params, h: Any, attend: Any) -> Any:
    """A block of f32[batch, length, d], where `attend` maps queries, keys and values to the attended features."""
    seen = attend(*rlx.split(nn.rms_norm(h, layer["norm_a"]) @ layer["qkv"], 3, axis=-1))
    h = h + seen @ layer["out"]
    return h + nn.gelu(nn.rms_norm(h, layer["norm_b"]) @ layer["up"]) @ layer["down"]


def logits(params: Params, ids: Any) -> Any:
    """i64[batch, length] -> f32[batch, length, characters]; a position attends to itself and to earlier positions."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        return nn.attention(turned(q), turned(k), v, num_heads=HEADS, is_causal=True)

    h = nn.embedding(ids, params["embedding"])
    for layer in params["layers"]:
        h = layer_of(layer, h, attend)
    return nn.rms_norm(h, params["norm"]) @ params["embedding"].T


def loss(params: Params, ids: Any, following: Any) -> Any:
    return nn.cross_entropy(logits(params, ids), following)


def is_matrix(params: Params) -> Params:
    """Which parameters decay: no gains, no embeddings."""
    layers = [{n: w.ndim == 2 for n, w in layer.items()} for layer in params["layers"]]
    return {"embedding": False, "layers": layers, "norm": False}


def train(steps: int = STEPS) -> tuple[Params, float]:
    rate = optim.warmup_cosine_decay_schedule(0.0, 3e-3, 30, STEPS)
    optimiser = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.1, mask=is_matrix))
    step = rlx.train_step(loss, optimiser)
    params, value = initial(), np.float32(0)
    state = optimiser.init(params)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        places = rng.integers(0, len(IDS) - LENGTH, (BATCH, 1)) + np.arange(LENGTH)
        params, state, value = step(params, state, IDS[places], IDS[places + 1])
    return params, float(value)


def behind(params: Params, cache: Cache, character: Any, place: Any) -> tuple[Any, Cache]:
    """Logits of the character after one at a position, and the key-value cache with this position appended."""
    new, position = [], rlx.reshape(place, (1, 1))
    h = nn.embedding(rlx.reshape(character, (1, 1)), params["embedding"])
    is_filled = rlx.reshape(np.arange(LENGTH) <= place, (1, LENGTH))
    for layer, (keys, values) in zip(params["layers"], cache, strict=True):

        def attend(q: Any, k: Any, v: Any, keys: Any = keys, values: Any = values) -> Any:
            keys = nn.update_cache(keys, turned(k, position), place, ring=True)
            values = nn.update_cache(values, v, place, ring=True)
            new.append((keys, values))
            return nn.attention(turned(q, position), keys, values, mask=is_filled, num_heads=HEADS)

        h = layer_of(layer, h, attend)
    return (nn.rms_norm(h, params["norm"]) @ params["embedding"].T)[0, 0], new


def drawn_behind(params: Params, cache: Cache, character: Any, place: Any, key: Any, heat: Any) -> tuple[Any, Cache]:
    """A character drawn from what comes behind one."""
    scores, cache = behind(params, cache, character, place)
    return rlx.random.sample_logits(key, scores, temperature=heat), cache


def no_cache() -> Cache:
    first = np.zeros((LAYERS, 2, 1, LENGTH, FEATURES), np.float32)
    return [(keys, values) for keys, values in first]


def written(params: Params, prompt: str, count: int = 160, temperature: float = 0.5, seed: int = 0) -> str:
    """`prompt` and `count` characters after it, each sampled from the model's distribution."""
    write = rlx.jit(drawn_behind, donate=("cache",))
    cache, ids = no_cache(), [ALPHABET.index(c) for c in prompt]
    for place in range(len(prompt) + count - 1):
        key = rlx.random.fold_in(rlx.random.key(seed), place)
        drawn, cache = write(params, cache, np.int64(ids[place]), np.int64(place), key, np.float32(temperature))
        if place == len(ids) - 1:
            ids.append(int(drawn))
    return "".join(ALPHABET[i] for i in ids)


def main() -> None:
    params, value = train()
    print(written(params, "Beautiful is"))
    print(f"loss {value:.3f}, {np.exp(value):.2f} characters to choose from on average, of {len(ALPHABET)}")


if __name__ == "__main__":
    main()

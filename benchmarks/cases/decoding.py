"""Text, token by token: a GPT of six layers and 384 features writes 32 tokens, with a cache of keys and values that it owns.

Every token is a call, whose argument is the token before: the time is of a small model's step and the overhead of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import rlx_core as rlx
from benchmarks.case import Case, Data, Program
from rlx_core import nn

VOCABULARY, FEATURES, HEADS, LAYERS, MAX_LENGTH, TOKENS = 4096, 384, 6, 6, 256, 32


def data() -> Data:
    rng = np.random.default_rng(0)
    d = FEATURES
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, d), "positions": (MAX_LENGTH, d), "norm": (d,)}
    for i in range(LAYERS):
        shapes |= {f"norm_a{i}": (d,), f"qkv{i}": (d, 3 * d), f"out{i}": (d, d)}
        shapes |= {f"norm_b{i}": (d,), f"up{i}": (d, 4 * d), f"down{i}": (4 * d, d)}
    params = {
        n: (np.ones(s) if len(s) == 1 else rng.standard_normal(s) * 0.05).astype(np.float32) for n, s in shapes.items()
    }
    return {"params": params, "tokens": TOKENS}


def no_cache() -> list[np.ndarray]:
    """Keys and values of every layer, one after the other: `[1, MAX_LENGTH, d]`."""
    return [np.zeros((1, MAX_LENGTH, FEATURES), np.float32) for _ in range(2 * LAYERS)]


def step(params: Mapping[str, Any], cache: Sequence[Any], token: Any, place: Any) -> tuple[Any, Any, list[Any]]:
    """The most probable token after one at a position, all scores, and the cache with that position in it."""
    h = rlx.reshape(
        rlx.take(params["embedding"], token, axis=0) + rlx.take(params["positions"], place, axis=0), (1, 1, -1)
    )
    seen = rlx.reshape(np.arange(MAX_LENGTH) <= place, (1, MAX_LENGTH))
    new: list[Any] = []
    for i in range(LAYERS):
        q, k, v = rlx.split(nn.rms_norm(h, params[f"norm_a{i}"], eps=1e-5) @ params[f"qkv{i}"], 3, axis=-1)
        keys = nn.update_cache(cache[2 * i], k, place)
        values = nn.update_cache(cache[2 * i + 1], v, place)
        new += [keys, values]
        h = h + nn.attention(q, keys, values, mask=seen, num_heads=HEADS) @ params[f"out{i}"]
        inner = nn.gelu(nn.rms_norm(h, params[f"norm_b{i}"], eps=1e-5) @ params[f"up{i}"])
        h = h + inner @ params[f"down{i}"]
    scores = (nn.rms_norm(h, params["norm"], eps=1e-5) @ params["embedding"].T)[0, 0]
    return rlx.argmax(scores), scores, new


def decode(data: Data) -> Program:
    compiled = rlx.jit(partial(step, data["params"]), donate=("cache",))  # so the weights are constants of the program

    def written() -> list[Any]:
        # Arrays of rlx, because those of NumPy are never overwritten: the first call would copy them.
        cache: list[Any] = [rlx.asarray(each) for each in no_cache()]
        token, tokens, scores = np.int64(1), [], None
        for place in range(data["tokens"]):
            token, scores, cache = compiled(cache, np.int64(token), np.int64(place))
            tokens.append(int(token))
        return [np.array(tokens), scores]

    return Program(written, written)


# Sums of 1536 products of numbers below 1, six layers deep.
CASES = (Case("decode", "decode", data, decode, rtol=1e-3, atol=1e-3, aim=0.50),)

"""Train a small GPT on characters of Python's own zen, and let it write.

One program has the forward pass, the loss, its gradients and AdamW's update; parameters and state are donated to it.

    python examples/char_gpt.py
"""

from __future__ import annotations

import codecs
import contextlib
import io
from collections.abc import Iterator
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

Params = dict[str, Any]


def initial(seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    d = FEATURES

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.08).astype(np.float32)

    layer = {"norm_a": (d,), "qkv": (d, 3 * d), "out": (d, d), "norm_b": (d,), "up": (d, 4 * d), "down": (4 * d, d)}
    return {
        "embedding": weights(len(ALPHABET), d),
        "positions": weights(LENGTH, d),
        "layers": [
            {n: np.ones(s, np.float32) if len(s) == 1 else weights(*s) for n, s in layer.items()} for _ in range(LAYERS)
        ],
        "norm": np.ones(d, np.float32),
    }


def logits(params: Params, ids: Any) -> Any:
    """i64[batch, length] -> f32[batch, length, characters]; a place sees itself and what is before it."""
    h = nn.embedding(ids, params["embedding"]) + params["positions"]
    for layer in params["layers"]:
        q, k, v = rlx.split(nn.rms_norm(h, layer["norm_a"]) @ layer["qkv"], 3, axis=-1)
        h = h + nn.attention(q, k, v, num_heads=HEADS, causal=True) @ layer["out"]
        h = h + nn.gelu(nn.rms_norm(h, layer["norm_b"]) @ layer["up"]) @ layer["down"]
    return nn.rms_norm(h, params["norm"]) @ params["embedding"].T


def loss(params: Params, ids: Any, following: Any) -> Any:
    return nn.cross_entropy(logits(params, ids), following)


def is_matrix(params: Params) -> Params:
    """Which parameters decay: no gains, no embeddings."""
    layers = [{n: w.ndim == 2 for n, w in layer.items()} for layer in params["layers"]]
    return {"embedding": False, "positions": False, "layers": layers, "norm": False}


def batches(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    while True:
        places = rng.integers(0, len(IDS) - LENGTH, (BATCH, 1)) + np.arange(LENGTH)
        yield IDS[places], IDS[places + 1]


def train(steps: int = STEPS) -> tuple[Params, float]:
    rate = optim.warmup_cosine_decay_schedule(0.0, 3e-3, 30, STEPS)
    optimiser = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.1, mask=is_matrix))
    step = rlx.train_step(loss, optimiser)
    params, value = initial(), np.float32(0)
    state = optimiser.init(params)
    for _, (ids, following) in zip(range(steps), batches(seed=1), strict=False):
        params, state, value = step(params, state, ids, following)
    return params, float(value)


def written(params: Params, prompt: str, count: int = 160, temperature: float = 0.5, seed: int = 0) -> str:
    """`prompt` and `count` characters after it, each drawn from what the model expects."""
    rng = np.random.default_rng(seed)
    expected = rlx.jit(logits)
    ids = [ALPHABET.index(c) for c in prompt]
    for _ in range(count):
        seen = ids[-LENGTH:]
        padded = np.array([seen + [0] * (LENGTH - len(seen))])  # no place sees what is behind it
        scores = np.asarray(expected(params, padded))[0, len(seen) - 1]
        # The largest of scores with Gumbel noise is a draw from their softmax.
        ids.append(int(np.argmax(scores / temperature + rng.gumbel(size=scores.shape))))
    return "".join(ALPHABET[i] for i in ids)


def main() -> None:
    params, value = train()
    print(written(params, "Beautiful is"))
    print(f"loss {value:.3f}, {np.exp(value):.2f} characters to choose from on average, of {len(ALPHABET)}")


if __name__ == "__main__":
    main()

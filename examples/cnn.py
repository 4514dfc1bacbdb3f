"""A convolutional network with batch norm reads handwritten digits; the ones that it misreads are drawn.

In training a layer takes the statistics of its batch, and the running ones are state that the loss returns as an auxiliary
output; in use they are given. Every epoch sees each image rotated, sheared, stretched and moved a little, and half of the
features are dropped.

    python examples/cnn.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn, optim

EPOCHS, BATCH = 30, 64
SHAPES = ((48, 1, 3, 3), (48, 48, 3, 3), (96, 48, 3, 3))
FEATURES = 96 * 4 * 4

Params = dict[str, Any]
Statistics = list[tuple[Any, Any]]
"""Running mean and variance of each layer's channels."""


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images f32[n, 1, 8, 8] and labels i64[n] to train with, and the same of a held-out fifth."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), labels[order].astype(np.int64)
    cut = len(labels) // 5
    return images[cut:], labels[cut:], images[:cut], labels[:cut]


def initial(seed: int = 0) -> tuple[Params, Statistics]:
    """Weights scaled to keep the variance of activations (He 2015), and statistics of mean 0 and variance 1."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int, fan_in: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    def each(value: float, channels: int) -> np.ndarray:
        return np.full(channels, value, np.float32)

    layers = [{"w": weights(*s, fan_in=s[1] * 9), "gamma": each(1, s[0]), "beta": each(0, s[0])} for s in SHAPES]
    out = {"w": weights(FEATURES, 10, fan_in=FEATURES), "b": each(0, 10)}
    return {"layers": layers, "out": out}, [(each(0, s[0]), each(1, s[0])) for s in SHAPES]


def logits(params: Params, statistics: Statistics, x: Any, key: Any = None) -> tuple[Any, Statistics]:
    """f32[n, 1, 8, 8] -> f32[n, 10], and in training, where there is a key, the statistics to go on with."""
    following = []
    for i, (layer, running) in enumerate(zip(params["layers"], statistics, strict=True)):
        x = nn.conv(x, layer["w"], padding="same")
        if key is None:
            x = nn.batch_norm_inference(x, *running, weight=layer["gamma"], bias=layer["beta"])
        else:
            x, mean, var = nn.batch_norm(x, *running, weight=layer["gamma"], bias=layer["beta"])
            following.append((mean, var))
        x = nn.relu(x)
        if i == 1:
            x = nn.max_pool(x, 2)
    x = rlx.reshape(x, (x.shape[0], FEATURES))
    if key is not None:
        x = nn.dropout(x, key, 0.5)
    return nn.linear(x, params["out"]["w"], params["out"]["b"]), following


def loss(params: Params, statistics: Statistics, key: Any, x: Any, labels: Any) -> tuple[Any, Statistics]:
    scores, following = logits(params, statistics, x, key)
    return nn.cross_entropy(scores, labels), following


def predicted(params: Params, statistics: Statistics, x: Any) -> Any:
    return rlx.argmax(logits(params, statistics, x)[0], axis=-1)


def bent(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image f32[1, 8, 8] through a linear map near the identity; a pixel is between the four that it comes from."""
    n = len(images)
    maps = np.eye(2) + 0.12 * rng.standard_normal((n, 2, 2))
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), axis=-1).reshape(64, 2) - 3.5
    points = grid @ maps + 3.5 + 0.4 * rng.standard_normal((n, 1, 2)) + 1  # in an image with an empty edge
    points = np.clip(points, 0, 8.999)
    corner = points.astype(int)
    up, left = np.moveaxis(corner, -1, 0)
    down_share, right_share = np.moveaxis(points - corner, -1, 0)
    wide, which = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1))), np.arange(n)[:, None]
    upper = (1 - right_share) * wide[which, up, left] + right_share * wide[which, up, left + 1]
    lower = (1 - right_share) * wide[which, up + 1, left] + right_share * wide[which, up + 1, left + 1]
    return ((1 - down_share) * upper + down_share * lower).reshape(images.shape).astype(np.float32)


def batches(images: np.ndarray, labels: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield bent(images[chosen], rng), labels[chosen]


def train(images: np.ndarray, labels: np.ndarray) -> tuple[Params, Statistics]:
    rate = optim.warmup_cosine_decay_schedule(0.0, 4e-3, 50, EPOCHS * (len(labels) // BATCH))
    optimiser = optim.adamw(rate, weight_decay=0.02)
    step = rlx.train_step(loss, optimiser, has_aux=True)
    params, statistics = initial()
    state, key = optimiser.init(params), rlx.random.key(0)
    for epoch in range(EPOCHS):
        for x, y in batches(images, labels, seed=epoch):
            key, step_key = rlx.random.split(key)
            params, state, (_, statistics) = step(params, state, statistics, step_key, x, y)
    return params, statistics


def picture(images: np.ndarray) -> str:
    """Images side by side; the more ink the denser."""
    rows = np.concatenate(list(images.reshape(-1, 8, 8)), axis=1)
    return "\n".join("".join(" .:-=+*#%@"[int(9 * v)] * 2 for v in row).rstrip() for row in rows)


def main() -> None:
    images, labels, held_out, true = data()
    params, statistics = train(images, labels)
    predictions = np.asarray(rlx.jit(predicted)(params, statistics, held_out))
    wrong = np.flatnonzero(predictions != true)[:6]
    shown = wrong if len(wrong) else np.arange(6)
    print(picture(held_out[shown]))
    print("read as " + ", ".join(f"{f} (is {t})" for f, t in zip(predictions[shown], true[shown], strict=True)))
    print(f"held-out accuracy {np.mean(predictions == true):.2%}, {np.sum(predictions != true)} of {len(true)} wrong")


if __name__ == "__main__":
    main()

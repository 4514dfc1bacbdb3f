"""A variational autoencoder learns to draw digits: sixteen numbers encode an image, and any sixteen decode to one.

The encoder returns mean and deviation in the latent space for an image; a point is sampled there, and the decoder draws the
image again. The key of the step determines all that is random in it, so the same seed trains the same model to the bit.

    python examples/vae.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn, optim

STEPS, BATCH, HIDDEN, LATENT = 3000, 128, 256, 16
PICTURE = Path("demo-out/vae.png")

Params = dict[str, Any]


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images f32[n, 64] of pixels from 0 to 1 to train with, and a held-out fifth."""
    images = (load_digits(return_X_y=True)[0] / 16).astype(np.float32)
    images = images[np.random.default_rng(seed).permutation(len(images))]
    cut = len(images) // 5
    return images[cut:], images[:cut]


def initial(key: Any) -> Params:
    sizes = {"in": (64, HIDDEN), "latent": (HIDDEN, 2 * LATENT), "wide": (LATENT, HIDDEN), "out": (HIDDEN, 64)}
    keys = rlx.random.split(key, len(sizes))
    return {
        name: {"weight": rlx.random.normal(k, size) / np.sqrt(np.float32(size[0])), "bias": rlx.zeros(size[1])}
        for k, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def encoded(params: Params, x: Any) -> tuple[Any, Any]:
    """f32[n, 64] -> the mean and the logarithm of the variance of its place, each f32[n, latent]."""
    h = nn.linear(x, **params["in"], activation="silu")
    mean, log_var = rlx.split(nn.linear(h, **params["latent"]), 2, axis=-1)
    return mean, log_var


def decoded(params: Params, place: Any) -> Any:
    """f32[n, latent] -> logits of the pixels, f32[n, 64]."""
    return nn.linear(nn.linear(place, **params["wide"], activation="silu"), **params["out"])


def bound(params: Params, key: Any, x: Any) -> Any:
    """Negative evidence lower bound in nats per image, estimated from one sample of the latent variables."""
    mean, log_var = encoded(params, x)
    place = mean + rlx.exp(0.5 * log_var) * rlx.random.normal(key, mean.shape)
    pixels = nn.binary_cross_entropy_with_logits(decoded(params, place), x, reduction="none")
    away = 0.5 * (mean * mean + rlx.exp(log_var) - 1 - log_var)  # from the standard normal, Kullback and Leibler's
    return rlx.mean(rlx.sum(pixels, axis=-1) + rlx.sum(away, axis=-1))


def train(images: np.ndarray, key: Any) -> Params:
    optimiser = optim.adam(optim.cosine_decay_schedule(3e-3, STEPS))
    step = rlx.train_step(bound, optimiser)
    first, key = rlx.random.split(key)
    params = rlx.jit(initial)(first)
    state = optimiser.init(params)
    for i in range(STEPS):
        chosen = np.random.default_rng(i).integers(0, len(images), BATCH)
        params, state, _ = step(params, state, rlx.random.fold_in(key, i), images[chosen])
    return params


def drawn(params: Params, key: Any, x: Any) -> Any:
    """f32[12, 64] -> f32[7, 12, 64]: a row of decoded images each, two from a digit to another, four from any point."""
    place, _ = encoded(params, x)
    share = np.linspace(0, 1, 12, dtype=np.float32)[:, None]
    lines = [(1 - share) * place[i] + share * place[i + 1] for i in (3, 6)]
    places = rlx.concat([place, *lines, rlx.random.normal(key, (48, LATENT))])
    return rlx.reshape(rlx.sigmoid(decoded(params, places)), (7, 12, 64))


def save_picture(rows: np.ndarray, path: Path) -> None:
    """f32[rows, columns, 64] -> a PNG of all of them."""
    board = np.block([[np.pad(image.reshape(8, 8), 1) for image in row] for row in rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, np.kron(board, np.ones((8, 8))), cmap="gray")


def main() -> None:
    images, held_out = data()
    first, second, third = rlx.random.split(rlx.random.key(0), 3)
    params = train(images, first)
    rows = np.asarray(rlx.jit(drawn)(params, second, held_out[:12]))
    save_picture(np.concatenate([held_out[None, :12], rows]), PICTURE)
    print(f"{PICTURE}: digits, what they are decoded to, two rows from a digit to another, four out of nothing")
    least = -np.sum(held_out * np.log(held_out + 1e-9) + (1 - held_out) * np.log(1 - held_out + 1e-9), axis=1).mean()
    cost = float(rlx.jit(bound)(params, third, held_out))
    print(f"held-out bound {cost:.2f} nats per image, of which {least:.2f} are the least that grey pixels cost")


if __name__ == "__main__":
    main()

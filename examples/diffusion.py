"""A small diffusion model draws the requested digit.

An image is mixed with noise, more of it the later the time; a network learns to tell the noise from the image. To draw, it
begins with nothing but noise and takes some of it away at a time, all steps in one loop of the compiled program.

    python examples/diffusion.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imsave
from sklearn.datasets import load_digits

import rlx_core as rlx
from rlx_core import nn, optim

STEPS, BATCH, WIDTH, BLOCKS, TIMES = 3000, 128, 256, 3, 100
PICTURE = Path("demo-out/diffusion.png")

SIGNAL = np.cos(np.linspace(0.02, 0.99, TIMES + 1) * np.pi / 2).astype(np.float32) ** 2
"""The share of an image's variance left at each time, from nearly all to nearly nothing (Nichol, Dhariwal 2021)."""

Params = dict[str, Any]


def initial(key: Any) -> Params:
    sizes = {"in": (64, WIDTH), "time": (WIDTH, WIDTH), "digit": (10, WIDTH), "out": (WIDTH, 64)}
    sizes |= {f"{part}{i}": (WIDTH, WIDTH) for i in range(BLOCKS) for part in ("a", "b")}
    keys = rlx.random.split(key, len(sizes))
    return {
        name: rlx.random.normal(k, size) / np.sqrt(np.float32(size[0]))
        for k, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def noise_in(params: Params, x: Any, time: Any, digit: Any) -> Any:
    """The noise in images f32[n, 64] at times i64[n], of digits i64[n]: f32[n, 64]."""
    angles = rlx.astype(time, "f32")[:, None] / TIMES * np.geomspace(1, 100, WIDTH // 2, dtype=np.float32)
    waves = rlx.concat([rlx.sin(angles), rlx.cos(angles)], axis=-1)
    h = x @ params["in"] + nn.embedding(digit, params["digit"])
    when = nn.silu(waves @ params["time"])
    for i in range(BLOCKS):
        h = h + nn.silu(nn.layer_norm(h + when) @ params[f"a{i}"]) @ params[f"b{i}"]
    return nn.layer_norm(h) @ params["out"]


def loss(params: Params, key: Any, x: Any, digit: Any) -> Any:
    time_key, noise_key = rlx.random.split(key)
    time = rlx.random.randint(time_key, (x.shape[0],), 1, TIMES + 1)
    noise = rlx.random.normal(noise_key, x.shape)
    signal = rlx.take(SIGNAL, time)[:, None]
    mixed = rlx.sqrt(signal) * x + rlx.sqrt(1 - signal) * noise
    return nn.mean_squared_error(noise_in(params, mixed, time, digit), noise)


def drawn(params: Params, key: Any, digit: Any) -> Any:
    """Images f32[n, 64] of digits i64[n], from noise at the last time to none at time 0 (Ho, Jain, Abbeel 2020)."""
    first, step_keys = rlx.random.split(key)
    shape = (digit.shape[0], 64)

    def step(x: Any, now: Any) -> tuple[Any, None]:
        time, signal, before, key = now
        noise = noise_in(params, x, rlx.broadcast_to(time, shape[:1]), digit)
        image = rlx.clip((x - rlx.sqrt(1 - signal) * noise) / rlx.sqrt(signal), -1, 1)
        lost = 1 - signal / before
        mean = (rlx.sqrt(before) * lost * image + rlx.sqrt(signal / before) * (1 - before) * x) / (1 - signal)
        spread = rlx.sqrt(lost * (1 - before) / (1 - signal))
        return mean + spread * rlx.random.normal(key, shape), None

    times = np.arange(TIMES, 0, -1)
    moments = (times, SIGNAL[times], SIGNAL[times - 1], rlx.random.split(step_keys, TIMES))
    return rlx.scan(step, rlx.random.normal(first, shape), moments)[0]


def train(images: np.ndarray, digits: np.ndarray, key: Any) -> tuple[Params, float]:
    """The parameters, and the mean of the loss over the last steps."""
    optimiser = optim.adam(optim.cosine_decay_schedule(2e-3, STEPS))
    step = rlx.train_step(loss, optimiser)
    first, key = rlx.random.split(key)
    params, values = rlx.jit(initial)(first), []
    state = optimiser.init(params)
    for i in range(STEPS):
        chosen = np.random.default_rng(i).integers(0, len(images), BATCH)
        params, state, value = step(params, state, rlx.random.fold_in(key, i), images[chosen], digits[chosen])
        values.append(float(value))
    return params, float(np.mean(values[-200:]))


def read(drawings: np.ndarray, images: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """The digit of the nearest true image to each."""
    distances = (drawings**2).sum(1)[:, None] - 2 * drawings @ images.T + (images**2).sum(1)
    return digits[distances.argmin(axis=1)]


def save_picture(rows: np.ndarray, path: Path) -> None:
    """f32[rows, columns, 64] -> a PNG of all of them."""
    board = np.block([[np.pad(image.reshape(8, 8), 1, constant_values=-1) for image in row] for row in rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, np.kron(board, np.ones((6, 6))), cmap="gray", vmin=-1, vmax=1)


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype(np.float32)
    first, second = rlx.random.split(rlx.random.key(0))
    params, value = train(images, digits, first)
    requested = np.repeat(np.arange(10), 20)
    drawings = np.asarray(rlx.jit(drawn)(params, second, requested))
    save_picture(drawings.reshape(10, 20, 64), PICTURE)
    print(f"{PICTURE}: twenty drawings of each digit; loss {value:.3f}")
    wrong = np.sum(read(drawings, images, digits) != requested)
    print(f"{wrong} of {len(requested)} drawings are nearest to an image of another digit than was asked for")


if __name__ == "__main__":
    main()

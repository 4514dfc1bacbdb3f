"""Fit Gaussian splats to a picture by gradients, and look at them from the side.

    python splats.py [steps] [folder]

The picture is a disc with a ring around it. From random Gaussians, every parameter (places, sizes, rotations, opacities,
colours) follows the gradient of the squared error; the last line is the peak signal-to-noise ratio that is reached.
Written are fitted.png (target, start, fit, and a view from the side) and fitted.ply.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_custom_ops.splat import Camera, Gaussians, render, write_ply

SIZE = 64  # pixels
COUNT = 150  # Gaussians
FRONT = Camera(position=np.float32([0, 0, -3]), target=np.zeros(3, np.float32), fov_y=np.float32(0.8))
SIDE = FRONT._replace(position=np.float32([1.5, 0.5, -2.6]))
RATES = Gaussians(positions=0.01, scales=0.02, rotations=0.02, opacities=0.05, colors=0.02, sh=0.0)


def target() -> np.ndarray:
    """A shaded disc, and a ring."""
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float32) / SIZE - 0.5
    distance = np.hypot(x, y)
    disc = np.stack([0.9 - x, 0.5 + y, 0.3 + 0 * x], axis=-1) * (distance < 0.22)[..., None]
    ring = np.float32([0.2, 0.5, 0.9]) * ((distance > 0.3) & (distance < 0.4))[..., None]
    return np.clip(disc + ring, 0, 1).astype(np.float32)


def scattered(rng: np.random.Generator) -> Gaussians:
    """Small grey Gaussians in front of the camera."""
    scene = Gaussians(
        positions=rng.uniform([-1.1, -1.1, -0.2], [1.1, 1.1, 0.2], (COUNT, 3)),
        scales=np.full((COUNT, 3), np.log(0.08)),
        rotations=rng.standard_normal((COUNT, 4)),
        opacities=np.zeros(COUNT),
        colors=np.full((COUNT, 3), 0.5),
        sh=np.zeros((COUNT, 0, 3)),
    )
    return Gaussians(*(part.astype(np.float32) for part in scene))


def picture(scene: Gaussians, camera: Camera) -> Any:
    return render(scene, camera, width=SIZE, height=SIZE)[..., :3]


def fit(
    scene: Gaussians, reference: np.ndarray, steps: int, say: Callable[[str], None] = print
) -> tuple[Gaussians, float]:
    """Adam on the squared error. The scene that was found, and its peak signal-to-noise ratio in decibels."""
    step = rlx.jit(rlx.value_and_grad(lambda scene: rlx.mean((picture(scene, FRONT) - reference) ** 2)))
    mean = squared = Gaussians(*(np.zeros_like(part) for part in scene))
    error = np.inf
    for t in range(1, steps + 1):
        error, gradient = step(scene)
        mean = Gaussians(*(0.9 * m + 0.1 * g for m, g in zip(mean, gradient, strict=True)))
        squared = Gaussians(*(0.99 * s + 0.01 * g * g for s, g in zip(squared, gradient, strict=True)))
        scene = Gaussians(
            *(
                (part - rate * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.99**t)) + 1e-8)).astype(np.float32)
                for part, rate, m, s in zip(scene, RATES, mean, squared, strict=True)
            )
        )
        if t % 50 == 0 or t == steps:
            say(f"step {t}: {-10 * np.log10(error):.1f} dB")
    return scene, float(-10 * np.log10(error))


def png(pixels: np.ndarray) -> bytes:
    """A picture [h, w, 3] between 0 and 1 as a PNG file."""
    height, width, _ = pixels.shape
    levels = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8).reshape(height, -1)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main(steps: int = 300, folder: str = ".") -> float:
    reference, start = target(), scattered(np.random.default_rng(0))
    fitted, decibels = fit(start, reference, steps)
    views = [
        reference,
        *(np.asarray(picture(scene, camera)) for scene, camera in ((start, FRONT), (fitted, FRONT), (fitted, SIDE))),
    ]
    Path(folder, "fitted.png").write_bytes(png(np.concatenate(views, axis=1)))
    write_ply(Path(folder, "fitted.ply"), fitted)
    print(f"{COUNT} Gaussians, {decibels:.1f} dB")
    return decibels


if __name__ == "__main__":
    main(*(int(word) if i == 0 else word for i, word in enumerate(sys.argv[1:3])))  # type: ignore[arg-type]

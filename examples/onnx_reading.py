"""Text in a scanned page: one ONNX model finds the lines, another reads them.

PP-OCRv4 (Baidu; Apache-2.0 licence) from the package `rapidocr-onnxruntime`, and a page from `scikit-image`. They are read as
files: the packages are not imported.

    python examples/onnx_reading.py          # saves demo-out/reading.png
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw
from scipy import ndimage

import rlx_onnx

OUT = Path("demo-out/reading.png")
HEIGHT, WIDTH = 48, 640  # of a line as it is read: shorter ones are padded, so that one program reads them all


def file(package: str, name: str) -> Path:
    """A file of an installed package."""
    files = importlib.metadata.files(package) or []
    return Path(str(next(each.locate() for each in files if each.name == name)))


def as_input(image: Image.Image) -> np.ndarray:
    """Pixels from -1 to 1, `f32[1, 3, height, width]`."""
    return np.moveaxis(np.asarray(image, np.float32) / 127.5 - 1, -1, 0)[None]


def lines(page: Image.Image) -> list[tuple[int, int, int, int]]:
    """Boxes around lines (left, top, right, bottom), from the top."""
    sides = [-(-side // 32) * 32 for side in page.size]
    path, spec = file("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx"), f"f32[1, 3, {sides[1]}, {sides[0]}]"
    model = rlx_onnx.load(path, inputs={"x": spec})
    chances = model(as_input(page.resize(sides)))[0, 0]
    across, down, boxes = page.width / sides[0], page.height / sides[1], []
    for rows, columns in ndimage.find_objects(ndimage.label(chances > 0.3)[0]):
        more = 0.4 * (rows.stop - rows.start)  # the model detects the middle of a line
        left, right = (columns.start - more) * across, (columns.stop + more) * across
        top, bottom = (rows.start - more) * down, (rows.stop + more) * down
        boxes.append((max(int(left), 0), max(int(top), 0), int(right), int(bottom)))
    return sorted(boxes, key=lambda box: box[1])


def texts(page: Image.Image, boxes: list[tuple[int, int, int, int]]) -> list[tuple[str, float]]:
    """The text in each box and its mean confidence, decoded greedily by CTC: repeated signs are merged, blanks removed."""
    path = file("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx")
    signs = ["", *onnx.load(path).metadata_props[0].value.splitlines(), " "]
    batch = np.zeros((len(boxes), 3, HEIGHT, WIDTH), np.float32)
    for number, box in enumerate(boxes):
        line = page.crop(box)
        width = min(round(line.width * HEIGHT / line.height), WIDTH)
        batch[number, :, :, :width] = as_input(line.resize((width, HEIGHT)))
    model = rlx_onnx.load(path, inputs={"x": f"f32[{len(boxes)}, 3, {HEIGHT}, {WIDTH}]"})
    chances = model(batch)  # f32[lines, steps, signs]
    best, confidence = chances.argmax(axis=-1), chances.max(axis=-1)
    starts = (best != 0) & (best != np.pad(best, ((0, 0), (1, 0)))[:, :-1])
    return [
        ("".join(signs[i] for i in best[n][columns]), float(confidence[n][columns].mean()))
        for n, columns in enumerate(starts)
    ]


def main() -> None:
    page = Image.open(file("scikit-image", "page.png")).convert("RGB").resize((768, 382))
    boxes = lines(page)
    recognised = [(box, *text) for box, text in zip(boxes, texts(page, boxes), strict=True) if text[1] > 0.5]
    for box, text, confidence in recognised:
        ImageDraw.Draw(page).rectangle(box, outline=(200, 0, 0), width=2)
        print(f"{confidence:.2f}  {text}")
    OUT.parent.mkdir(exist_ok=True)
    page.save(OUT)
    print(
        f"{len(recognised)} lines in {OUT}, {np.mean([confidence for *_, confidence in recognised]):.2f} sure of a sign"
    )


if __name__ == "__main__":
    main()

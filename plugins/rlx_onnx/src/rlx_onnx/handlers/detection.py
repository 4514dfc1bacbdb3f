"""Regions of pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles


@handles("RoiAlign")
def roi_align(node: OnnxNode, x: Any, rois: Any, batches: Any) -> Any:
    """Regions read at points between cells, the mean or the largest of each bin's points."""
    rows, columns = node.get("output_height", 1), node.get("output_width", 1)
    samples, scale = node.get("sampling_ratio", 0), node.get("spatial_scale", 1.0)
    half = (
        0.5 if node.choice("coordinate_transformation_mode", "half_pixel", "output_half_pixel") == "half_pixel" else 0.0
    )
    largest = node.choice("mode", "avg", "max") == "max"
    if samples > 0:
        return _aligned(x, rois, batches, (rows, columns), (samples, samples), scale, half, largest)
    # As many points as a bin has cells: regions differ in it, so each is read by itself.
    known = node.known(1, "rois").astype(np.float64)
    result = []
    for i, region in enumerate(known * scale - half):
        sides = region[2:] - region[:2]
        sides = sides if half else np.maximum(sides, 1.0)
        points = (int(np.ceil(sides[1] / rows)), int(np.ceil(sides[0] / columns)))
        result.append(_aligned(x, rois[i : i + 1], batches[i : i + 1], (rows, columns), points, scale, half, largest))
    return rlx.concat(result, axis=0)


def _aligned(
    x: Any,
    rois: Any,
    batches: Any,
    bins: tuple[int, int],
    points: tuple[int, int],
    scale: float,
    half: float,
    largest: bool,
) -> Any:
    _, c, height, width = x.shape
    dtype = dtype_of(x.dtype)
    regions = rois * scale - half
    parts = []
    for axis, (count, per, size) in enumerate(((bins[0], points[0], height), (bins[1], points[1], width))):
        start, end = regions[:, 1 - axis], regions[:, 3 - axis]
        long = end - start if half else rlx.maximum(end - start, 1.0)
        steps = ((np.arange(count)[:, None] + (np.arange(per) + 0.5) / per) / count).ravel().astype(dtype.numpy)
        parts.append((rlx.expand_dims(start, axis=1) + rlx.expand_dims(long, axis=1) * steps, size))
    (y, high), (z, wide) = parts
    flat = rlx.take(rlx.moveaxis(rlx.reshape(x, (x.shape[0], c, height * width)), 1, 2), batches, axis=0)
    total: Any = None
    ys, zs = _two(y, high), _two(z, wide)
    for row, row_share in ys:
        for column, share in zs:
            place = rlx.reshape(
                rlx.expand_dims(row, axis=2) * width + rlx.expand_dims(column, axis=1), (row.shape[0], -1)
            )
            weight = rlx.reshape(
                rlx.expand_dims(row_share, axis=2) * rlx.expand_dims(share, axis=1), (row.shape[0], -1, 1)
            )
            part = rlx.gather(flat, rlx.astype(place, rlx.i64), axis=1, batch_dims=1) * weight
            total = part if total is None else rlx.maximum(total, part) if largest else total + part
    cut = rlx.reshape(total, (-1, bins[0], points[0], bins[1], points[1], c))
    result = rlx.max(cut, axis=(2, 4)) if largest else rlx.mean(cut, axis=(2, 4))
    return rlx.permute_dims(result, (0, 3, 1, 2))


def _two(coordinate: Any, size: int) -> list[tuple[Any, Any]]:
    """The two cells around each place and their shares, which are 0 beyond one cell outside."""
    inside = rlx.astype(rlx.logical_and(coordinate >= -1.0, coordinate <= size), coordinate.dtype)
    stored = rlx.maximum(coordinate, 0)
    low = rlx.minimum(rlx.floor(stored), size - 1)
    remaining = rlx.where(low >= size - 1, rlx.zeros_like(stored), stored - low)
    return [(low, (1 - remaining) * inside), (rlx.minimum(low + 1, size - 1), remaining * inside)]

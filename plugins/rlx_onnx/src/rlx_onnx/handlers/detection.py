"""Regions of pictures: their alignment, and non-maximum suppression of boxes."""

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


# ----------------------------------------------------------------------------- non-maximum suppression


@handles("NonMaxSuppression", finds_sizes=True)
def non_max_suppression(
    node: OnnxNode, boxes: Any, scores: Any, maximum: Any = None, overlap: Any = None, least: Any = None
) -> Any:
    """Rows of batch, class and box; their number is determined on the host unless everything is known."""
    centred = bool(node.get("center_point_box", 0))

    def step(boxes: Any, scores: Any, maximum: Any, overlap: Any, least: Any) -> tuple[np.ndarray, ...]:
        count = 0 if maximum is None else int(maximum.item())
        edge = 0.0 if overlap is None else float(overlap.item())
        floor = None if least is None else float(least.item())
        return (suppressed(boxes, scores, count, edge, floor, centred=centred),)

    return node.on_host(step, lambda n: [rlx.TensorType(rlx.i64, (n, 3))], 0, 1, 2, 3, 4)


def suppressed(
    boxes: np.ndarray, scores: np.ndarray, count: int, edge: float, floor: float | None, *, centred: bool
) -> np.ndarray:
    """The boxes that stay.

    Args:
        boxes: `[batch, box, 4]`: two opposite corners, or with `centred` middle, width and height.
        scores: `[batch, class, box]`
        count: At most so many of each class.
        edge: Boxes overlap if more than this part of their union is in both.
        floor: Boxes with at most this score are left out.

    Returns:
        `i64[n, 3]`: batch, class and box; of each class the best first, of equal scores the one that comes first.
    """
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or scores.shape[::2] != boxes.shape[:2]:
        raise ValueError("boxes are [batch, box, 4] and scores [batch, class, box]")
    corners = _corners(boxes.astype(np.float64), centred)
    areas = np.prod(corners[..., 2:] - corners[..., :2], axis=-1)
    rows = [np.empty((0, 3), np.int64)]
    for batch, number in np.ndindex(scores.shape[:2]):
        values = scores[batch, number]
        chosen = np.arange(values.size) if floor is None else np.flatnonzero(values > floor)
        order = chosen[np.argsort(-values[chosen], kind="stable")]
        retained = _kept(corners[batch], areas[batch], order, count, edge)
        rows.append(np.stack([np.full_like(retained, batch), np.full_like(retained, number), retained], axis=1))
    return np.concatenate(rows)


def _kept(corners: np.ndarray, areas: np.ndarray, order: np.ndarray, count: int, edge: float) -> np.ndarray:
    """Return the boxes that remain, from boxes sorted by score: each overlaps no earlier remaining one."""
    retained: list[int] = []
    while order.size and len(retained) < count:
        best, order = order[0], order[1:]
        retained.append(best)
        low = np.maximum(corners[order, :2], corners[best, :2])
        high = np.minimum(corners[order, 2:], corners[best, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[order] + areas[best] - shared
        order = order[shared <= edge * union]
    return np.array(retained, np.int64)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """Return boxes as smaller and larger corner, in any order of the operand's corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)

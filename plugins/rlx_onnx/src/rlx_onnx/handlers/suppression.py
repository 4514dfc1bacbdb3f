"""Non-maximum suppression: the best boxes of each class without boxes that overlap a better one."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles

__all__ = ["suppressed"]


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

"""Rasterising tile by tile in NumPy: each tile of pixels processes only the splats that reach it, so memory stays small.

Splats are omitted exactly where `ops/dense.py` gives opacity 0, so the two are equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from rlx_custom_ops.splat.ops.dense import MAX_ALPHA

SIDE: Final = 16
"""Pixels along each side of a tile."""


class SplatTile(NamedTuple):
    """A tile, the splats that reach it in their order, and what each does to each pixel: [pixels, splats]."""

    rows: slice
    columns: slice
    splats: np.ndarray
    x: np.ndarray
    y: np.ndarray
    falloff: np.ndarray
    alpha: np.ndarray
    is_free: np.ndarray
    before: np.ndarray


def tiles(
    op: Any, centres: np.ndarray, conics: np.ndarray, radii: np.ndarray, opacities: np.ndarray
) -> Iterator[SplatTile]:
    """The tiles of a picture that any splat reaches."""
    is_seen = opacities > 0  # as those are not that lie outside of the view; their centres may be anywhere
    for top in range(0, op.height, SIDE):
        rows = slice(top, min(top + SIDE, op.height))
        in_rows = is_seen & (centres[:, 1] + radii >= rows.start) & (centres[:, 1] - radii <= rows.stop)
        for left in range(0, op.width, SIDE):
            columns = slice(left, min(left + SIDE, op.width))
            is_covered = in_rows & (centres[:, 0] + radii >= columns.start) & (centres[:, 0] - radii <= columns.stop)
            splats = np.flatnonzero(is_covered)
            if splats.size:
                yield tile(op, rows, columns, splats, centres, conics, radii, opacities)


def tile(
    op: Any,
    rows: slice,
    columns: slice,
    splats: np.ndarray,
    centres: np.ndarray,
    conics: np.ndarray,
    radii: np.ndarray,
    opacities: np.ndarray,
) -> SplatTile:
    down, right = (np.arange(s.start, s.stop, dtype=centres.dtype) + centres.dtype.type(0.5) for s in (rows, columns))
    x = np.tile(right, len(down))[:, None] - centres[splats, 0]
    y = np.repeat(down, len(right))[:, None] - centres[splats, 1]
    xx, xy, yy = conics[splats].T
    falloff = np.exp(-0.5 * (xx * x * x + yy * y * y) - xy * x * y)
    covered = opacities[splats] * falloff
    alpha = np.minimum(covered, centres.dtype.type(MAX_ALPHA))
    is_shown = (alpha >= op.alpha_cutoff) & (x * x + y * y <= radii[splats] ** 2)
    alpha = np.where(is_shown, alpha, 0)
    before = np.ones_like(alpha)
    np.cumprod(1 - alpha[:, :-1], axis=1, out=before[:, 1:])
    is_shown &= before >= op.transmittance_threshold
    return SplatTile(
        rows, columns, splats, x, y, falloff, np.where(is_shown, alpha, 0), is_shown & (covered < MAX_ALPHA), before
    )


def forward(op: Any, picture: np.ndarray, *splats: np.ndarray) -> None:
    """Write the picture [h, w, 4] of one set of splats."""
    *shapes, colors = splats
    picture[...] = 0
    for each in tiles(op, *shapes):
        weights = each.before * each.alpha
        part = picture[each.rows, each.columns]
        part[..., :3] = (weights @ colors[each.splats]).reshape(*part.shape[:2], 3)
        part[..., 3] = weights.sum(axis=1).reshape(part.shape[:2])


def backward(op: Any, cotangents: tuple[np.ndarray, ...], g: np.ndarray, *splats: np.ndarray) -> None:
    """Write the cotangents of centres, conics, opacities and colours, given the cotangent of the picture."""
    for cotangent in cotangents:
        cotangent[...] = 0
    d_centres, d_conics, d_opacities, d_colors = cotangents
    *shapes, colors = splats
    conics = splats[1]
    for each in tiles(op, *shapes):
        here, weights = each.splats, each.before * each.alpha
        g_tile = g[each.rows, each.columns].reshape(-1, 4)
        d_weights = g_tile[:, :3] @ colors[here].T + g_tile[:, 3:]
        d_colors[here] += weights.T @ g_tile[:, :3]
        light = weights * d_weights
        behind = light.sum(axis=1, keepdims=True) - np.cumsum(light, axis=1)
        d_alpha = np.where(each.is_free, each.before * d_weights - behind / (1 - each.alpha), 0)
        d_opacities[here] += (d_alpha * each.falloff).sum(axis=0)
        d_power = d_alpha * each.alpha
        x, y = each.x, each.y
        xx, xy, yy = conics[here].T
        for column, factor in enumerate((-0.5 * x * x, -x * y, -0.5 * y * y)):
            d_conics[here, column] += (d_power * factor).sum(axis=0)
        for column, factor in enumerate((xx * x + xy * y, xy * x + yy * y)):
            d_centres[here, column] += (d_power * factor).sum(axis=0)

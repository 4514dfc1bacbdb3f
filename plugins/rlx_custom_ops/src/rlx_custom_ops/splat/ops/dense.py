"""Rasterising in rlx's own ops, every pixel with every splat: the meaning of the ops, whatever computes them.

Arrays of pixels and splats are [..., p, n], the pixels row after row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import rlx_core as rlx

__rlx_library__ = True

MAX_ALPHA = 0.99
"""Maximum alpha of one splat, so that splats behind it have a derivative."""


class Layers(NamedTuple):
    """The effect of every splat on every pixel."""

    x: Any  # from the splat's centre to the pixel
    y: Any
    falloff: Any
    alpha: Any  # 0 where the splat is left out
    is_free: Any  # whether alpha follows the falloff: it is neither left out nor at its most
    before: Any  # how much light comes through all nearer splats


def layers(op: Any, centres: Any, conics: Any, radii: Any, opacities: Any) -> Layers:
    """Every splat in every pixel, those left out that are too faint, too far away, or behind too much."""
    row, column = pixels(op, centres.dtype)
    x, y = (rlx.expand_dims(place, -1) - rlx.expand_dims(centres[..., i], -2) for i, place in ((0, column), (1, row)))
    xx, xy, yy = (rlx.expand_dims(conics[..., i], -2) for i in range(3))
    falloff = rlx.exp(-0.5 * (xx * x * x + yy * y * y) - xy * x * y)
    covered = rlx.expand_dims(opacities, -2) * falloff
    reach = rlx.expand_dims(radii, -2)
    alpha = rlx.minimum(covered, MAX_ALPHA)
    is_shown = (alpha >= op.alpha_cutoff) & (x * x + y * y <= reach * reach)
    alpha = rlx.where(is_shown, alpha, 0.0)
    before = rlx.cumulative_prod(1.0 - alpha, axis=-1, include_initial=True)[..., :-1]
    is_shown = is_shown & (before >= op.transmittance_threshold)
    return Layers(x, y, falloff, rlx.where(is_shown, alpha, 0.0), is_shown & (covered < MAX_ALPHA), before)


def pixels(op: Any, dtype: Any) -> tuple[Any, Any]:
    """The places of the pixels' centres, row after row."""
    grid, count = (op.height, op.width), op.height * op.width
    row, column = (rlx.reshape(rlx.iota(axis=axis, shape=grid, dtype=dtype) + 0.5, (count,)) for axis in (0, 1))
    return row, column


def forward(op: Any, centres: Any, conics: Any, radii: Any, opacities: Any, colors: Any) -> Any:
    """The picture [..., h, w, 4]."""
    every = layers(op, centres, conics, radii, opacities)
    weights = every.before * every.alpha
    rgba = rlx.concat([rlx.matmul(weights, colors), rlx.sum(weights, axis=-1, keepdims=True)], axis=-1)
    return rlx.reshape(rgba, (*centres.shape[:-2], op.height, op.width, 4))


def backward(op: Any, g: Any, centres: Any, conics: Any, radii: Any, opacities: Any, colors: Any) -> tuple[Any, ...]:
    """Return the cotangents of centres, conics, opacities and colours, given the cotangent of the picture."""
    every = layers(op, centres, conics, radii, opacities)
    weights = every.before * every.alpha
    g = rlx.reshape(g, (*g.shape[:-3], op.height * op.width, 4))
    d_weights = rlx.matmul(g[..., :3], rlx.matrix_transpose(colors)) + g[..., 3:]  # of each splat's light in each pixel
    d_colors = rlx.matmul(rlx.matrix_transpose(weights), g[..., :3])

    # A splat adds its own light, and takes its part of all light from behind it.
    light = weights * d_weights
    behind = rlx.sum(light, axis=-1, keepdims=True) - rlx.cumulative_sum(light, axis=-1)
    d_alpha = rlx.where(every.is_free, every.before * d_weights - behind / (1.0 - every.alpha), 0.0)
    d_opacities = rlx.sum(d_alpha * every.falloff, axis=-2)
    d_power = d_alpha * every.alpha
    x, y = every.x, every.y
    xx, xy, yy = (rlx.expand_dims(conics[..., i], -2) for i in range(3))
    d_conics = rlx.stack([rlx.sum(d_power * f, axis=-2) for f in (-0.5 * x * x, -1.0 * x * y, -0.5 * y * y)], axis=-1)
    d_centres = rlx.stack([rlx.sum(d_power * f, axis=-2) for f in (xx * x + xy * y, xy * x + yy * y)], axis=-1)
    return d_centres, d_conics, d_opacities, d_colors

"""Rasterising in rlx's own ops, every pixel with every splat: the meaning of the ops, whatever computes them.

Arrays of pixels and splats are [..., p, n], the pixels row after row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx_core.ops import (
    concat,
    cumulative_prod,
    cumulative_sum,
    exp,
    expand_dims,
    iota,
    matmul,
    matrix_transpose,
    minimum,
    reshape,
    stack,
    sum,
    where,
)

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
    x, y = (expand_dims(place, -1) - expand_dims(centres[..., i], -2) for i, place in ((0, column), (1, row)))
    xx, xy, yy = (expand_dims(conics[..., i], -2) for i in range(3))
    falloff = exp(-0.5 * (xx * x * x + yy * y * y) - xy * x * y)
    covered = expand_dims(opacities, -2) * falloff
    reach = expand_dims(radii, -2)
    alpha = minimum(covered, MAX_ALPHA)
    is_shown = (alpha >= op.alpha_cutoff) & (x * x + y * y <= reach * reach)
    alpha = where(is_shown, alpha, 0.0)
    before = cumulative_prod(1.0 - alpha, axis=-1, include_initial=True)[..., :-1]
    is_shown = is_shown & (before >= op.transmittance_threshold)
    return Layers(x, y, falloff, where(is_shown, alpha, 0.0), is_shown & (covered < MAX_ALPHA), before)


def pixels(op: Any, dtype: Any) -> tuple[Any, Any]:
    """The places of the pixels' centres, row after row."""
    grid, count = (op.height, op.width), op.height * op.width
    row, column = (reshape(iota(axis=axis, shape=grid, dtype=dtype) + 0.5, (count,)) for axis in (0, 1))
    return row, column


def forward(op: Any, centres: Any, conics: Any, radii: Any, opacities: Any, colors: Any) -> Any:
    """The picture [..., h, w, 4]."""
    every = layers(op, centres, conics, radii, opacities)
    weights = every.before * every.alpha
    rgba = concat([matmul(weights, colors), sum(weights, axis=-1, keepdims=True)], axis=-1)
    return reshape(rgba, (*centres.shape[:-2], op.height, op.width, 4))


def backward(op: Any, g: Any, centres: Any, conics: Any, radii: Any, opacities: Any, colors: Any) -> tuple[Any, ...]:
    """Return the cotangents of centres, conics, opacities and colours, given the cotangent of the picture."""
    every = layers(op, centres, conics, radii, opacities)
    weights = every.before * every.alpha
    g = reshape(g, (*g.shape[:-3], op.height * op.width, 4))
    d_weights = matmul(g[..., :3], matrix_transpose(colors)) + g[..., 3:]  # of each splat's light in each pixel
    d_colors = matmul(matrix_transpose(weights), g[..., :3])

    # A splat adds its own light, and takes its part of all light from behind it.
    light = weights * d_weights
    behind = sum(light, axis=-1, keepdims=True) - cumulative_sum(light, axis=-1)
    d_alpha = where(every.is_free, every.before * d_weights - behind / (1.0 - every.alpha), 0.0)
    d_opacities = sum(d_alpha * every.falloff, axis=-2)
    d_power = d_alpha * every.alpha
    x, y = every.x, every.y
    xx, xy, yy = (expand_dims(conics[..., i], -2) for i in range(3))
    d_conics = stack([sum(d_power * f, axis=-2) for f in (-0.5 * x * x, -1.0 * x * y, -0.5 * y * y)], axis=-1)
    d_centres = stack([sum(d_power * f, axis=-2) for f in (xx * x + xy * y, xy * x + yy * y)], axis=-1)
    return d_centres, d_conics, d_opacities, d_colors

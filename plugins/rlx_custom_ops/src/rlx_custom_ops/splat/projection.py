"""From Gaussians in space to splats in a picture, in rlx's own ops."""

from __future__ import annotations

from typing import Any, Final

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.ops import (
    argsort,
    exp,
    expand_dims,
    matmul,
    matrix_transpose,
    maximum,
    reshape,
    sigmoid,
    sqrt,
    square,
    stack,
    sum,
    take,
    tan,
    where,
)
from rlx_custom_ops.splat.harmonics import directional
from rlx_custom_ops.splat.scene import Camera, Gaussians, Splats, expect_gaussians

__all__ = ["project"]

__rlx_library__ = True

BLUR: Final = 0.3
"""Added to the variance of every splat, in square pixels, so that none falls between the pixels."""


def project(gaussians: Gaussians, camera: Camera, *, width: int, height: int, radius_scale: float = 3.0) -> Splats:
    """The splats that a camera sees, from the nearest to the farthest.

    Args:
        gaussians, camera: The scene; see there for shapes.
        width, height: The picture, in pixels.
        radius_scale: How many standard deviations a splat reaches; farther away it is cut off.

    Raises:
        ShapeError: The arrays of the scene do not belong together.
        ConfigError: A size is below 1.

    Source:
        Zwicker et al. 2001, "EWA volume splatting", equations 26 to 31.
    """
    expect_gaussians(gaussians)
    expect_picture(width, height)
    axes = view_axes(camera, gaussians.positions)
    offsets = gaussians.positions - expand_dims(axes.position, 0)
    x, y, depth = (column[:, 0] for column in rlx.split(matmul(offsets, matrix_transpose(axes.rows)), 3, axis=1))
    is_seen = (depth >= camera.near) & (depth <= camera.far)
    z = where(is_seen, depth, 1.0)
    focal = height / (2.0 * tan(0.5 * axes.fov_y))

    centres = stack([0.5 * width + focal * x / z, 0.5 * height - focal * y / z], axis=1)
    zero = rlx.zeros_like(z)
    jacobian = stack(
        [
            stack([focal / z, zero, -focal * x / (z * z)], axis=1),
            stack([zero, -focal / z, focal * y / (z * z)], axis=1),
        ],
        axis=1,
    )
    stretched = rotation(gaussians.rotations) * expand_dims(exp(gaussians.scales), 1)
    flat = matmul(matmul(jacobian, axes.rows), stretched)  # covariances are its products with its own transposes
    covariance = matmul(flat, matrix_transpose(flat))
    xx, xy, yy = covariance[:, 0, 0] + BLUR, covariance[:, 0, 1], covariance[:, 1, 1] + BLUR
    determinant = xx * yy - xy * xy
    conics = stack([yy, -xy, xx], axis=1) / expand_dims(determinant, 1)
    largest = 0.5 * (xx + yy) + sqrt(maximum(0.25 * square(xx - yy) + xy * xy, 0.0))
    radii = radius_scale * sqrt(largest)

    colors = gaussians.colors
    if gaussians.sh.shape[1]:
        colors = colors + directional(unit(offsets), gaussians.sh)
    opacities = where(is_seen, sigmoid(gaussians.opacities), 0.0)
    order = argsort(depth)
    found = Splats(centres, conics, radii, opacities, maximum(colors, 0.0))
    return Splats(*(take(part, order, axis=0) for part in found))


class Axes:
    """The camera in the dtype of the scene: its position, and rows that say right, up and forward."""

    def __init__(self, position: Any, rows: Any, fov_y: Any) -> None:
        self.position, self.rows, self.fov_y = position, rows, fov_y


def view_axes(camera: Camera, like: Any) -> Axes:
    position, target, up, fov_y = (
        rlx.astype(rlx.asarray(part), like.dtype) for part in (camera.position, camera.target, camera.up, camera.fov_y)
    )
    forward = unit(target - position)
    right = unit(rlx.linalg.cross(forward, up))
    return Axes(position, stack([right, rlx.linalg.cross(right, forward), forward], axis=0), fov_y)


def unit(x: Any) -> Any:
    """Vectors of length 1."""
    return x / sqrt(sum(square(x), axis=-1, keepdims=True))


def rotation(quaternions: Any) -> Any:
    """The rotation matrices [N, 3, 3] of quaternions [N, 4] of any length."""
    x, y, z, w = (column[:, 0] for column in rlx.split(unit(quaternions), 4, axis=1))
    elements = [
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    ]
    return reshape(stack(elements, axis=1), (quaternions.shape[0], 3, 3))


def expect_picture(width: int, height: int) -> None:
    if not (isinstance(width, int) and isinstance(height, int) and min(width, height) >= 1):
        raise ConfigError(f"splat: width and height must be whole numbers of at least 1, not {width!r} and {height!r}")

"""From Gaussians in space to splats in a picture, in rlx's own ops."""

from __future__ import annotations

import math
from typing import Any, Final

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_custom_ops.splat.harmonics import directional
from rlx_custom_ops.splat.scene import Camera, Gaussians, Splats, expect_gaussians

__rlx_library__ = True

BLUR: Final = 0.3
"""Added to the variance of every splat, in square pixels, so that none falls between the pixels."""


FAINTEST: Final = 0.000025
"""The smallest share of its determinant that the blur of a splat leaves to it, so that its root has a slope."""


def project(
    gaussians: Gaussians,
    camera: Camera,
    *,
    width: int,
    height: int,
    radius_scale: float = 3.0,
    sh_degree: int | None = None,
    antialiased: bool = False,
    max_anisotropy: float | None = None,
) -> Splats:
    """The splats that a camera sees, from the nearest to the farthest.

    Args:
        gaussians, camera: The scene; see there for shapes.
        width, height: The picture, in pixels.
        radius_scale: Radius of a splat in standard deviations, beyond which it is cut off.
        sh_degree: Up to which band of spherical harmonics colours depend on the direction, 0 to 3; all that there are if `None`.
        antialiased: Whether opacities make up for the blur that every splat gets, so that a small one does not grow brighter
            as it moves away.
        max_anisotropy: Maximum ratio of a Gaussian's axes; shorter axes are lengthened.

    Raises:
        ShapeError: The arrays of the scene do not belong together.
        ConfigError: A size is below 1, a degree above the scene's, or an anisotropy below 1.

    Source:
        Zwicker et al. 2001, "EWA volume splatting", equations 26 to 31; for `antialiased` Yu et al. 2024, "Mip-Splatting",
        arXiv:2311.16493, section 4.2.
    """
    expect_gaussians(gaussians)
    expect_picture(width, height)
    sh = up_to_degree(gaussians.sh, sh_degree)
    scales = gaussians.scales if max_anisotropy is None else rounder(gaussians.scales, max_anisotropy)
    axes = view_axes(camera, gaussians.positions)
    offsets = gaussians.positions - rlx.expand_dims(axes.position, 0)
    x, y, depth = (
        column[:, 0] for column in rlx.split(rlx.matmul(offsets, rlx.matrix_transpose(axes.rows)), 3, axis=1)
    )
    is_seen = (depth >= camera.near) & (depth <= camera.far)
    z = rlx.where(is_seen, depth, 1.0)
    focal = height / (2.0 * rlx.tan(0.5 * axes.fov_y))

    centres = rlx.stack([0.5 * width + focal * x / z, 0.5 * height - focal * y / z], axis=1)
    zero = rlx.zeros_like(z)
    jacobian = rlx.stack(
        [
            rlx.stack([focal / z, zero, -focal * x / (z * z)], axis=1),
            rlx.stack([zero, -focal / z, focal * y / (z * z)], axis=1),
        ],
        axis=1,
    )
    stretched = rotation(gaussians.rotations) * rlx.expand_dims(rlx.exp(scales), 1)
    # Covariances are its products with its own transposes.
    flat = rlx.matmul(rlx.matmul(jacobian, axes.rows), stretched)
    covariance = rlx.matmul(flat, rlx.matrix_transpose(flat))
    sharp_xx, xy, sharp_yy = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
    xx, yy = sharp_xx + BLUR, sharp_yy + BLUR
    determinant = xx * yy - xy * xy
    conics = rlx.stack([yy, -xy, xx], axis=1) / rlx.expand_dims(determinant, 1)
    largest = 0.5 * (xx + yy) + rlx.sqrt(rlx.maximum(0.25 * rlx.square(xx - yy) + xy * xy, 0.0))
    radii = radius_scale * rlx.sqrt(largest)

    colors = gaussians.colors
    if sh.shape[1]:
        colors = colors + directional(unit(offsets), sh)
    opacities = rlx.where(is_seen, rlx.sigmoid(gaussians.opacities), 0.0)
    if antialiased:
        opacities = opacities * rlx.sqrt(rlx.maximum((sharp_xx * sharp_yy - xy * xy) / determinant, FAINTEST))
    order = rlx.argsort(depth)
    splats = Splats(centres, conics, radii, opacities, rlx.maximum(colors, 0.0))
    return Splats(*(rlx.take(part, order, axis=0) for part in splats))


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
    return Axes(position, rlx.stack([right, rlx.linalg.cross(right, forward), forward], axis=0), fov_y)


def unit(x: Any) -> Any:
    """Vectors of length 1."""
    return x / rlx.sqrt(rlx.sum(rlx.square(x), axis=-1, keepdims=True))


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
    return rlx.reshape(rlx.stack(elements, axis=1), (quaternions.shape[0], 3, 3))


def up_to_degree(sh: Any, degree: int | None) -> Any:
    """Return the coefficients of the requested bands.

    Raises:
        ConfigError: The scene has fewer bands.
    """
    if degree is None:
        return sh
    known = {0: 0, 3: 1, 8: 2, 15: 3}[sh.shape[1]]
    if not isinstance(degree, int) or isinstance(degree, bool) or not 0 <= degree <= known:
        raise ConfigError(f"splat: sh_degree must be 0 to {known}, of which the scene has coefficients, not {degree!r}")
    return sh[:, : (degree + 1) ** 2 - 1]


def rounder(scales: Any, limit: float) -> Any:
    """Logarithms of standard deviations, none of which is less than the largest over `limit`.

    Raises:
        ConfigError: `limit` is below 1.
    """
    if not limit >= 1:
        raise ConfigError(f"splat: max_anisotropy must be at least 1, not {limit!r}")
    return rlx.maximum(scales, rlx.max(scales, axis=1, keepdims=True) - math.log(limit))


def expect_picture(width: int, height: int) -> None:
    if not (isinstance(width, int) and isinstance(height, int) and min(width, height) >= 1):
        raise ConfigError(f"splat: width and height must be whole numbers of at least 1, not {width!r} and {height!r}")

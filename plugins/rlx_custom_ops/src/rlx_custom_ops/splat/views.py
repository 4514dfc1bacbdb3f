"""Pictures of a scene."""

from __future__ import annotations

from typing import Any

from rlx_core.ops import asarray, astype, concat
from rlx_custom_ops.splat.ops.rasterize import Rasterize
from rlx_custom_ops.splat.projection import project
from rlx_custom_ops.splat.scene import Camera, Gaussians

__rlx_library__ = True


def render(
    gaussians: Gaussians,
    camera: Camera,
    *,
    width: int,
    height: int,
    background: Any = (0.0, 0.0, 0.0),
    radius_scale: float = 3.0,
    alpha_cutoff: float = 1 / 255,
    transmittance_threshold: float = 1e-4,
    sh_degree: int | None = None,
    antialiased: bool = False,
    max_anisotropy: float | None = None,
) -> Any:
    """The picture that a camera takes: [height, width, 4], red, green, blue over the background, and how much of it is covered.

    `alpha_cutoff` and `transmittance_threshold` are documented in `Rasterize`, the other settings in `project`.

    Raises:
        ShapeError: The arrays of the scene do not belong together.
        ConfigError: A size is below 1, or a setting outside of its range.
    """
    splats = project(
        gaussians,
        camera,
        width=width,
        height=height,
        radius_scale=radius_scale,
        sh_degree=sh_degree,
        antialiased=antialiased,
        max_anisotropy=max_anisotropy,
    )
    rgba = Rasterize(width, height, alpha_cutoff, transmittance_threshold)(*splats)
    color, alpha = rgba[..., :3], rgba[..., 3:]
    behind = astype(asarray(background), color.dtype)
    return concat([color + (1.0 - alpha) * behind, alpha], axis=-1)

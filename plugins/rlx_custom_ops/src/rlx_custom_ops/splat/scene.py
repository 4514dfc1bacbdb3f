"""Scenes and cameras. All are named tuples of arrays, so programs take them, differentiate them and return them."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx_core.errors import ShapeError


class Gaussians(NamedTuple):
    """N Gaussians in space.

    Shapes:
        positions: [N, 3]    scales: [N, 3], logarithms of the three standard deviations
        rotations: [N, 4], quaternions x y z w of any length but 0    opacities: [N], logits
        colors: [N, 3], independent of direction    sh: [N, c, 3], added by direction: c is 0, 3, 8 or 15
    """

    positions: Any
    scales: Any
    rotations: Any
    opacities: Any
    colors: Any
    sh: Any


class Camera(NamedTuple):
    """The viewpoint of a picture: all of it is data, and may be differentiated.

    Attributes:
        position, target, up: [3] each; the target is in the middle of the picture.
        fov_y: The angle between the upper and the lower edge of the picture, in radians.
        near, far: Objects that are nearer or farther along the view are culled.
    """

    position: Any
    target: Any
    up: Any = (0.0, 1.0, 0.0)
    fov_y: Any = 0.8
    near: Any = 0.01
    far: Any = 1000.0


class Splats(NamedTuple):
    """N Gaussians in a picture, from the nearest to the farthest. One that is not seen has opacity 0.

    Shapes:
        centres: [N, 2], pixels to the right and down    conics: [N, 3], the elements xx, xy, yy of the inverse covariance
        radii: [N], how far each reaches, in pixels    opacities: [N]    colors: [N, 3]
    """

    centres: Any
    conics: Any
    radii: Any
    opacities: Any
    colors: Any


def expect_gaussians(gaussians: Gaussians) -> int:
    """Require arrays that belong together, and say how many Gaussians they are.

    Raises:
        ShapeError: One has other dims.
    """
    count = (*gaussians.positions.shape, 0)[0]
    expected = {"positions": (3,), "scales": (3,), "rotations": (4,), "opacities": (), "colors": (3,)}
    for name, trailing in expected.items():
        shape = tuple(getattr(gaussians, name).shape)
        if shape != (count, *trailing):
            raise ShapeError(f"splat: {name} must be {[count, *trailing]}, not {list(shape)}")
    sh = tuple(gaussians.sh.shape)
    if len(sh) != 3 or (sh[0], sh[2]) != (count, 3) or sh[1] not in (0, 3, 8, 15):
        raise ShapeError(f"splat: sh must be [{count}, 0 | 3 | 8 | 15, 3], not {list(sh)}")
    return int(count)

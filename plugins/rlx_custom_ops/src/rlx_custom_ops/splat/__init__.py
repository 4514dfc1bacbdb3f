"""Gaussian splats: a scene of soft ellipsoids, rendered with exact derivatives, so that pictures can be fitted.

`render` is `project` and one op, `splat.rasterize`. All of it is differentiable in the Gaussians and in the camera. Derivatives
treat the order of depth and the culling as constant.

Source: Kerbl et al. 2023, "3D Gaussian splatting for real-time radiance field rendering", arXiv:2308.04079; the projection is
from Zwicker et al. 2001, "EWA volume splatting".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_custom_ops.splat.ply import read_ply, write_ply
    from rlx_custom_ops.splat.projection import project
    from rlx_custom_ops.splat.scene import Camera, Gaussians, Splats
    from rlx_custom_ops.splat.views import render

__all__ = ["Camera", "Gaussians", "Splats", "project", "read_ply", "render", "write_ply"]

_PLACES = {"project": "projection", "read_ply": "ply", "render": "views", "write_ply": "ply"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES.get(name, 'scene')}"), name)


def __dir__() -> list[str]:
    return __all__

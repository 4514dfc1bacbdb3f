"""The ops of the domain `splat`."""

from rlx_custom_ops.splat.ops import rasterize

__all__ = ["OPS"]

OPS = rasterize.OPS

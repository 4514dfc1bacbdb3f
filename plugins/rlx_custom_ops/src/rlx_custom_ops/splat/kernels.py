"""Kernels for target `cpu`: tiles in NumPy, whose memory does not grow with the product of pixels and splats."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.pipeline.kernels import KernelTable
from rlx_custom_ops.splat.ops.rasterize import Rasterize, RasterizeBackward

kernels = KernelTable("cpu", plugin="splat")


@kernels.register(Rasterize, dtypes="f32 f64", accepts_strides=True)
def numpy_splat_tiles(op: Any, *operands: np.ndarray, out: np.ndarray, workspace: Any) -> None:
    """The splats of each tile, all of its pixels at once."""
    op.write(out, *operands)


@kernels.register(RasterizeBackward, dtypes="f32 f64", accepts_strides=True)
def numpy_splat_tiles_backward(op: Any, *operands: np.ndarray, out: tuple[np.ndarray, ...], workspace: Any) -> None:
    """The same tiles, from the last splat to the first."""
    op.write(out, *operands)

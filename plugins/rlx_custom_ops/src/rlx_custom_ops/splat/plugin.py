"""Entry point of the domain `splat`, without heavy imports."""

from rlx_core.contributions import KernelSpec, OpFamily
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_ops() -> list[OpFamily]:
    return [OpFamily("rlx_custom_ops.splat.ops:OPS", ["splat.rasterize", "splat.rasterize_backward"])]


@hookimpl
def rlx_kernels() -> list[KernelSpec]:
    return [KernelSpec("cpu", "rlx_custom_ops.splat.kernels:kernels", summary="Splats tile by tile, in NumPy.")]

"""Entry point of the domain `sparse`, without heavy imports."""

from rlx_core.contributions import KernelSpec, OpFamily
from rlx_core.hooks import hookimpl


@hookimpl
def rlx_ops() -> list[OpFamily]:
    return [OpFamily("rlx_custom_ops.sparse.ops:OPS", ["sparse.solve", "sparse.lsqr"])]


@hookimpl
def rlx_kernels() -> list[KernelSpec]:
    return [KernelSpec("cpu", "rlx_custom_ops.sparse.kernels:kernels", summary="Sparse systems, through SciPy.")]

"""Entry point of the plugin: its contributions by name, without heavy imports."""

from collections.abc import Iterator

from rlx_core.contributions import KernelSpec, OpFamily
from rlx_core.hooks import hookimpl

FAMILIES = {
    "cholesky": "cholesky",
    "determinant": "slogdet logdet",
    "eig": "eig",
    "eigh": "eigh",
    "expm": "expm",
    "kron": "kron",
    "least_squares": "pinv lstsq",
    "lu": "lu",
    "polar": "polar",
    "qr": "qr",
    "solve": "solve inverse",
    "svd": "svd",
    "triangular": "triangular_solve",
}
"""File in `ops/` → the names of its ops."""


@hookimpl
def rlx_ops() -> Iterator[OpFamily]:
    for family, names in FAMILIES.items():
        yield OpFamily(f"rlx_custom_ops.ops.{family}:OPS", [f"linalg.{name}" for name in names.split()])


@hookimpl
def rlx_kernels() -> list[KernelSpec]:
    return [
        KernelSpec("cpu", "rlx_custom_ops.kernels:kernels", summary="LAPACK, through SciPy."),
        KernelSpec("cpu", "rlx_custom_ops.native:native", summary="Factors of small matrices, as machine code."),
        KernelSpec("cuda", "rlx_custom_ops.device_kernels:kernels", summary="cuSOLVER, through CuPy."),
    ]

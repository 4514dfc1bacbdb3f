"""Linear algebra by the names of the Python Array API: `rlx.linalg.solve(a, b)`.

Factorisations come from a package (rlx-custom-ops has them); the rest is part of rlx. The definitions are in
`rlx_core.ops.array_linalg` and its neighbours.
"""

from typing import Any

from rlx_core.ops.array_linalg import (
    cholesky,
    cross,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    multi_dot,
    pinv,
    qr,
    slogdet,
    svd,
    svdvals,
    trace,
)
from rlx_core.ops.array_norms import matrix_norm, norm, vector_norm
from rlx_core.ops.array_shapes import diagonal, matrix_transpose
from rlx_core.ops.linalg import matmul, outer, tensordot, vecdot
from rlx_core.ops.solve import solve
from rlx_core.public import absent

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)

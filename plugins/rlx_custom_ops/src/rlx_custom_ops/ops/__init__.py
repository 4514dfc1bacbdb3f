"""The ops by family. `OPS` is all of them; the modules know the mathematics and NumPy, and nothing of kernels."""

from rlx_custom_ops.ops import (
    cholesky,
    determinant,
    eig,
    eigh,
    expm,
    kron,
    least_squares,
    lu,
    polar,
    qr,
    solve,
    svd,
    triangular,
)

__all__ = ["OPS"]

OPS = (
    *cholesky.OPS,
    *triangular.OPS,
    *solve.OPS,
    *lu.OPS,
    *determinant.OPS,
    *qr.OPS,
    *eigh.OPS,
    *eig.OPS,
    *svd.OPS,
    *least_squares.OPS,
    *expm.OPS,
    *polar.OPS,
    *kron.OPS,
)

"""The ops of the domain `sparse`. Their references are SciPy's algorithms: no dense algorithm could replace them."""

from rlx_custom_ops.sparse.ops import least_squares, solve

__all__ = ["OPS"]

OPS = (*solve.OPS, *least_squares.OPS)

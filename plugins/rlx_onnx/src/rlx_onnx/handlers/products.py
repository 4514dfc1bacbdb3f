"""Products of matrices, and what follows from them."""

from __future__ import annotations

from typing import Any

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows

rows(
    {
        "MatMul": lambda node, a, b: rlx.matmul(a, b),
        "Einsum": lambda node, *operands: rlx.einsum(str(node.get("equation")).replace(" ", ""), *operands),
    }
)


@handles("Gemm")
def gemm(node: OnnxNode, a: Any, b: Any, c: Any = None) -> Any:
    """alpha · a · b + beta · c, either factor transposed."""
    dtype = dtype_of(a.dtype)
    a = rlx.matrix_transpose(a) if node.get("transA", 0) else a
    b = rlx.matrix_transpose(b) if node.get("transB", 0) else b
    result = rlx.matmul(a, b)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if alpha != 1.0:
        result = rlx.astype(result * alpha, dtype)
    if c is None or beta == 0.0:
        return result
    return rlx.astype(result + (c if beta == 1.0 else c * beta), dtype)


@handles("Det")
def determinant(node: OnnxNode, x: Any) -> Any:
    """The determinant, by elimination with the largest pivot of each column."""
    n = x.shape[-1]
    if not isinstance(n, int) or n > 64:
        node.refuse(f"the determinant of matrices with {n} rows", "at most 64 rows")
    flat = rlx.reshape(x, (-1, n, n))
    total = rlx.ones((flat.shape[0],), dtype=dtype_of(x.dtype))
    remaining = flat
    for size in range(n, 0, -1):
        pivot = rlx.argmax(rlx.abs(remaining[:, :, 0]), axis=1)
        chosen = rlx.expand_dims(rlx.arange(size), axis=0) == rlx.expand_dims(pivot, axis=1)
        row = rlx.sum(rlx.where(rlx.expand_dims(chosen, axis=2), remaining, rlx.zeros_like(remaining)), axis=1)
        # The first row takes the pivot's place: a swap, which turns the sign unless it is the first itself.
        remaining = rlx.where(rlx.expand_dims(chosen, axis=2), remaining[:, :1], remaining)[:, 1:]
        lead = row[:, 0]
        total = total * lead * rlx.where(pivot == 0, 1.0, -1.0)
        safe = rlx.where(lead == 0, rlx.ones_like(lead), lead)
        factor = remaining[:, :, 0] / rlx.expand_dims(safe, axis=1)
        remaining = remaining[:, :, 1:] - rlx.expand_dims(factor, axis=2) * rlx.expand_dims(row[:, 1:], axis=1)
    return rlx.reshape(rlx.astype(total, dtype_of(x.dtype)), x.shape[:-2])

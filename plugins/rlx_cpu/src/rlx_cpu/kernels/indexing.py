"""Gathers that read straight into the planned buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import IndexRangeError
from rlx_core.ir.graph import Node
from rlx_core.ops.indexing import Gather
from rlx_core.pipeline.kernels import condition
from rlx_cpu.kernels.table import kernels


@condition("no batch axes, and no fill for indices outside")
def is_plain(node: Node) -> bool:
    return isinstance(node.op, Gather) and node.op.batch_dims == 0 and node.op.oob != "fill"


@kernels.register(Gather, when=is_plain, accepts_strides=True)
def take(op: Gather, table: np.ndarray, indices: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """`numpy.take` with the bounds checked beforehand."""
    size = table.shape[op.axis]
    if indices.size and (op.oob == "error" or size == 0):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= size:
            worst = low if low < 0 else high
            raise IndexRangeError(f"gather: index {worst} is outside an axis of {size} elements")
    if indices.dtype.kind == "u" and indices.dtype.itemsize == 8:
        # NumPy reads an index of 2⁶³ or more as a negative one.
        indices = np.minimum(indices, indices.dtype.type(max(size - 1, 0))).astype(np.int64)
    if out.size:
        np.take(table, indices, axis=op.axis, out=out, mode="clip")

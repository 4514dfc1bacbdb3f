"""Pooling: one number for every window of the spatial axes of `[n, c, ..]`, and where an extreme came from."""

from __future__ import annotations

from rlx_core.ir.op import Op
from rlx_core.ops.pooling import extremes, positions, totals

OPS: tuple[type[Op], ...] = (*totals.OPS, *positions.OPS, *extremes.OPS)

"""Reading and writing at index tuples: the indexed axes become one, and the tuples one linear index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_core.ir.dims import Dim, is_static, product
from rlx_core.ir.dtypes import i64
from rlx_core.ops.arithmetic import maximum, minimum
from rlx_core.ops.creation import dim_value
from rlx_core.ops.indexing import OutOfBounds
from rlx_core.ops.selection import where
from rlx_core.ops.structural import cast


def _size(size: Dim) -> Any:
    return size if is_static(size) else dim_value(size=size)


def linear_index(coordinates: Sequence[Any], sizes: Sequence[Dim], oob: OutOfBounds = "error") -> Any:
    """One index into axes of `sizes` taken as one, from an index into each.

    A tuple with a part outside its axis becomes -1, which is outside of everything, unless `oob` is "clip": then each
    part moves to the nearest end of its own axis.
    """
    total: Any = 0
    parts = [cast(c, to=i64) for c in coordinates]
    if oob == "clip":
        parts = [minimum(maximum(c, 0), _size(n) - 1) for c, n in zip(parts, sizes, strict=True)]
    for k, part in enumerate(parts):
        stride = product(sizes[k + 1 :])
        total = total + (part if stride == 1 else part * _size(stride))
    if oob != "clip":
        for part, n in zip(parts, sizes, strict=True):
            total = where(part >= 0, where(part < _size(n), total, -1), -1)
    return total

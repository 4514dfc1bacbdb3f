"""Methods of arrays that no public function is."""

from __future__ import annotations

from typing import Any

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Value
from rlx_core.ops.conversion import cast
from rlx_core.ops.structural import reshape, transpose


def astype(x: Any, to: Any) -> Any:
    """Return `x` in another dtype."""
    target = dtype(to)
    if not isinstance(x, Value):
        return x if x.dtype == target else cast(x, to=target)
    if x.dtype is not target:
        return cast(x, to=target)
    # A copy even without a conversion: as in NumPy, assignments to the result do not affect `x`.
    reshaped = reshape(x, x.shape)
    return reshaped.node.owner.as_copy(reshaped)


def matrix_transpose(x: Any) -> Any:
    """Return `x` with its last two axes exchanged."""
    axes = list(range(x.ndim))
    return transpose(x, perm=(*axes[:-2], *reversed(axes[-2:])))

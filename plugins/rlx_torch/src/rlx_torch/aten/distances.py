"""Distances of rows from one another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten, rows


def _norm_of(difference: Any, p: float, axis: int) -> Any:
    size = rlx.abs(difference)
    if p == 0:
        return rlx.sum(convert(rlx.not_equal(difference, as_value(0, difference.dtype)), difference.dtype), axis=axis)
    if p == math.inf:
        return rlx.max(size, axis=axis)
    if p == 1:
        return rlx.sum(size, axis=axis)
    if p == 2:
        return rlx.sqrt(rlx.sum(size * size, axis=axis))
    zero = rlx.equal(size, as_value(0, size.dtype))
    powers = rlx.where(zero, as_value(0, size.dtype), rlx.pow(rlx.where(zero, as_value(1, size.dtype), size), p))
    return rlx.pow(rlx.sum(powers, axis=axis), as_value(1 / p, size.dtype))


@aten("_cdist_forward", "cdist", "_euclidean_dist")
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """The p-norm of the difference of every row of `a` and every row of `b`."""
    return _norm_of(rlx.expand_dims(a, axis=-2) - rlx.expand_dims(b, axis=-3), p, -1)


rows(
    {
        "_cdist_backward": lambda g, a, b, p, found: rlx.vjp(lambda a: cdist(a, b, p), a)[1](g)[0],
        "_pdist_backward": lambda g, x, p, found: rlx.vjp(lambda x: pdist(x, p), x)[1](g)[0],
    }
)


@aten("_pdist_forward", "pdist")
def pdist(x: Any, p: float = 2.0) -> Any:
    """The p-norm of the difference of every two rows, the first before the second."""
    if not isinstance(x.shape[0], int):
        refuse("cdist, where the number of rows is a symbol")
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm_of(rlx.take(x, first, axis=0) - rlx.take(x, second, axis=0), p, -1)

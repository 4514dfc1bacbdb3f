"""Running extremes along an axis, with the signature of the Array API's running sums."""

from __future__ import annotations

from typing import Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.cumulative import cum_log_sum_exp, cummax, cummin

__all__ = ["cumulative_logsumexp", "cumulative_max", "cumulative_min"]


@checked_call
def cumulative_max(x: Any, axis: int | None = None) -> Any:
    """The largest element so far along `axis`; NaN propagates.

    >>> cumulative_max(np.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return cummax(x, axis=_axis("cumulative_max", x, axis))


@checked_call
def cumulative_min(x: Any, axis: int | None = None) -> Any:
    """The smallest element so far along `axis`; NaN propagates."""
    return cummin(x, axis=_axis("cumulative_min", x, axis))


@checked_call
def cumulative_logsumexp(x: Any, axis: int | None = None) -> Any:
    """log of the running sum of exponentials along `axis`, without overflow."""
    return cum_log_sum_exp(x, axis=_axis("cumulative_logsumexp", x, axis))


def _axis(name: str, x: Any, axis: int | None) -> int:
    """Return the axis, which is optional if there is only one."""
    rank = len(shape_of(x))
    if axis is None and rank != 1:
        raise ShapeError(f"{name}: x has {rank} axes, so the axis must be given")
    return 0 if axis is None else axis

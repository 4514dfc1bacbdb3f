"""Running extremes along an axis, with the signature of the Array API's running sums."""

from __future__ import annotations

from typing import Any

from rlx_core.hints.keywords import checked_call
from rlx_core.ops.array_statistics import one_axis
from rlx_core.ops.cumulative import cum_log_sum_exp, cummax, cummin


@checked_call
def cumulative_max(x: Any, axis: int | None = None) -> Any:
    """The largest element so far along `axis`; NaN propagates.

    >>> cumulative_max(np.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return cummax(x, axis=one_axis("cumulative_max", x, axis))


@checked_call
def cumulative_min(x: Any, axis: int | None = None) -> Any:
    """The smallest element so far along `axis`; NaN propagates."""
    return cummin(x, axis=one_axis("cumulative_min", x, axis))


@checked_call
def cumulative_logsumexp(x: Any, axis: int | None = None) -> Any:
    """log of the running sum of exponentials along `axis`, without overflow."""
    return cum_log_sum_exp(x, axis=one_axis("cumulative_logsumexp", x, axis))

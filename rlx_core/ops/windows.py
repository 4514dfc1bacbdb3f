"""Windows of fixed sizes at positions known only at run time, with the positions as one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.ops import dynamic
from rlx_core.ops.arguments import listed


@checked_call
def dynamic_slice(x: Any, start_indices: Sequence[Any], slice_sizes: Sequence[Dim]) -> Any:
    """The window of `slice_sizes` of `x` that starts at `start_indices`, one index per axis, clamped so that it fits.

    The starts are operands, so one program serves all positions; if they are known, `x[2:5]` is a slice.

    >>> dynamic_slice(np.arange(5), [3], [2]).tolist()
    [3, 4]
    """
    return dynamic.dynamic_slice(x, *_indices(start_indices), sizes=slice_sizes)


@checked_call
def dynamic_update_slice(x: Any, update: Any, start_indices: Sequence[Any]) -> Any:
    """`x` with the window at `start_indices`, one index per axis, overwritten by `update`; it is clamped so that it fits.

    >>> dynamic_update_slice(np.zeros(4), np.ones(2), [1]).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    return dynamic.dynamic_update_slice(x, update, *_indices(start_indices))


def _indices(starts: Sequence[Any]) -> list[Any]:
    """Return Python's integers as index arrays: as numbers they would take the dtype of the data."""
    return [np.int64(s) if isinstance(s, int) else s for s in listed("start_indices", starts)]

"""The tables of rotary embeddings, computed at their use."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ir.dtypes import dtype, i64
from rlx_core.ops.arguments import number
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import iota
from rlx_core.ops.linalg import operand
from rlx_core.ops.rope import RopeLayout
from rlx_core.ops.structural import reshape
from rlx_core.ops.trigonometry import cos, sin


def rope_tables(
    x: Any, positions: Any, theta: float, head_dim: int, n_rot: int | None, layout: RopeLayout
) -> tuple[Any, Any, Any]:
    """Return cosines, sines, and the row of each token: one row per index in the sequence, or per token if positions are given.

    Raises:
        ConfigError: theta is not above 0.
        ShapeError: Positions are not `[b, s]`, or x has no axes for them.
    """
    if not number("rope: theta", theta) > 0:
        raise ConfigError(f"rope: theta must be above 0, not {theta!r}")
    sequence = 2 if layout == "bhsd" else 1
    if len(x.shape) <= sequence:
        raise ShapeError(f"rope: x must have {3 if layout == 'bsd' else 4} axes in layout {layout}, not {len(x.shape)}")
    source_dtype = dtype(x.dtype)
    wide = source_dtype.accumulator if source_dtype.is_float else source_dtype
    pairs = np.arange(head_dim // 2, dtype=np.float64)
    frequencies = np.power(float(theta), -2 * pairs / (head_dim if n_rot is None else n_rot))
    rows, which = iota(axis=0, shape=(x.shape[sequence],)), None
    if positions is not None:
        position_ids, shape = operand(positions), (x.shape[0], x.shape[sequence])
        if tuple(position_ids.shape) != shape:
            raise ShapeError(f"rope: positions must be {list(shape)}, not {list(position_ids.shape)}")
        count = shape[0] * shape[1]
        rows, which = reshape(position_ids, (count,)), reshape(iota(axis=0, shape=(count,), dtype=i64), shape)
    angles = cast(reshape(rows, (*rows.shape, 1)), to=wide) * frequencies.astype(wide.numpy)
    return cos(angles), sin(angles), which

"""`x[key] = y`: the name `x` stands for a new value from then on, in which the elements at `key` are those of `y`.

Values never change. What was computed from `x` before, and the array that the caller of a traced function holds, keep theirs;
so an argument of the program cannot be assigned to, only a copy of it.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.graph import Value
from rlx_core.ops.at import written

__all__ = ["setitem"]


def setitem(x: Value, key: Any, value: Any) -> None:
    """`x[key] = value` for the keys that `x[key]` takes, and for a computed mask over the leading axes.

    The value is cast to the dtype of `x`, and broadcasts over what is selected; under a computed mask, over all of `x`.

    Raises:
        ShapeError: The value does not broadcast so.
        TraceError: `x` is an argument of the program, or belongs to another one.
    """
    x.node.owner.assign(x, written(x, key, value, "set"))

"""`x[key] = y`: rebinds the variable `x` to a new value, whose elements at `key` are those of `y`.

Values are immutable. Values computed from `x` before, and the array of the caller of a traced function, do not change; so an
argument of the program cannot be assigned to, only a copy of it.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.graph import Value
from rlx_core.ops.at import written


def setitem(x: Value, key: Any, value: Any) -> None:
    """`x[key] = value` for all keys of `x[key]`, and for a computed mask over the leading axes.

    The value is cast to the dtype of `x`, and broadcasts over the selection; under a computed mask, over all of `x`.

    Raises:
        ShapeError: The value does not broadcast to that shape.
        TraceError: `x` is an argument of the program, or belongs to another one.
    """
    x.node.owner.assign(x, written(x, key, value, "set"))

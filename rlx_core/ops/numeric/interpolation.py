"""Linear interpolation between points, and polynomials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arithmetic import add, divide, multiply, subtract
from rlx_core.ops.array_elementwise import clip
from rlx_core.ops.array_search import searchsorted, take
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.comparison import equal, greater, less
from rlx_core.ops.linalg import operand
from rlx_core.ops.numeric.elementwise import floating
from rlx_core.ops.selection import where

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | None = None, right: ArrayLike | None = None
) -> Array:
    """The linear interpolation of points, evaluated at `x`.

    Args:
        x: f[..].
        xp: f[n], the coordinates of the points, in ascending order.
        fp: f[n], their values.
        left, right: Values before the first and after the last point; by default those of these points.

    Raises:
        ShapeError: `xp` and `fp` are not vectors of one length, or are empty.
    """
    x, points, values = floating(x), floating(xp), floating(fp)
    if len(shape_of(points)) != 1 or tuple(shape_of(points)) != tuple(shape_of(values)) or shape_of(points)[0] == 0:
        raise ShapeError(
            f"interp: xp and fp are lines of one length, not {list(shape_of(points))} and {list(shape_of(values))}"
        )
    last: Any = shape_of(points)[0] - 1
    above = clip(searchsorted(points, x, side="right"), 0, last)
    below = clip(subtract(above, 1), 0, last)
    start, end = take(points, below, axis=0), take(points, above, axis=0)
    low, high = take(values, below, axis=0), take(values, above, axis=0)
    width = subtract(end, start)
    # Points at equal coordinates have no slope; the division is by 1 there, also for the derivative.
    flat = equal(width, 0)
    y = add(low, multiply(divide(subtract(x, start), where(flat, 1, width)), subtract(high, low)))
    y = where(flat, low, y)
    y = where(
        greater(x, points[last]),
        values[last] if right is None else right,
        where(equal(x, points[last]), values[last], y),
    )
    return where(less(x, points[0]), values[0] if left is None else left, y)


@checked_call
def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """The polynomial with coefficients `p` `[n]`, the highest power first, at `x`: by Horner's rule.

    Raises:
        ShapeError: `p` is not a vector, or its length is unknown.
    """
    coefficients, x = operand(p), operand(x)
    if len(shape_of(coefficients)) != 1 or not isinstance(shape_of(coefficients)[0], int):
        raise ShapeError(f"polyval: p is a line of coefficients of known length, not {list(shape_of(coefficients))}")
    y = multiply(x, 0)
    for i in range(shape_of(coefficients)[0]):
        y = add(multiply(y, x), coefficients[i])
    return y

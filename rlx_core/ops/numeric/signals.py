"""Convolution and correlation of two vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arguments import choice
from rlx_core.ops.array_elementwise import conj
from rlx_core.ops.array_shapes import flip, reshape, shape_of
from rlx_core.ops.convolution.layers import conv
from rlx_core.ops.linalg import operand
from rlx_core.ops.numeric.elementwise import floating

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

Mode = Literal["full", "same", "valid"]


@checked_call
def convolve(a: ArrayLike, v: ArrayLike, mode: Mode = "full") -> Array:
    """The convolution of two vectors: y[k] = Σ a[i] v[k - i].

    Args:
        a: [n].
        v: [m].
        mode: "full": at every overlap, n + m - 1 elements; "same": the middle of these, of the length of the longer vector;
            "valid": at full overlaps.

    Raises:
        ShapeError: An operand is not a vector of known length, or is empty.
    """
    return _sliding("convolve", a, v, mode)


@checked_call
def correlate(a: ArrayLike, v: ArrayLike, mode: Mode = "valid") -> Array:
    """The cross-correlation of two vectors: y[k] = Σ a[i + k] conj(v[i]); modes as for `convolve`."""
    return _sliding("correlate", a, flip(conj(operand(v))), mode)


def _sliding(name: str, x1: Any, x2: Any, mode: Mode) -> Any:
    choice(f"{name}: mode", mode, get_args(Mode))
    for x in (x1, x2):
        if len(shape_of(x)) != 1 or not isinstance(shape_of(x)[0], int) or shape_of(x)[0] == 0:
            raise ShapeError(f"{name}: operands are lines of known length, not {list(shape_of(x))}")
    long, short = (x1, x2) if shape_of(x1)[0] >= shape_of(x2)[0] else (x2, x1)
    m: Any = shape_of(short)[0]
    before = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    after = {"full": m - 1, "same": m - 1 - m // 2, "valid": 0}[mode]
    a, b = floating(long), flip(floating(short))
    return reshape(conv(reshape(a, (1, 1, -1)), reshape(b, (1, 1, -1)), padding=[(before, after)]), (-1,))

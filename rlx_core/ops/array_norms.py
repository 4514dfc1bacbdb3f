"""Norms of vectors and matrices, as the Python Array API's extension for linear algebra names them."""

from __future__ import annotations

import math
from typing import Any, Literal

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, i64
from rlx_core.ops.activation import sqrt
from rlx_core.ops.arguments import number
from rlx_core.ops.arithmetic import abs, pow, square
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_linalg import expect_floating, sides, svdvals
from rlx_core.ops.array_shapes import Axis, axes_of, expand_dims, moveaxis, shape_of
from rlx_core.ops.array_statistics import max, min, sum
from rlx_core.ops.comparison import equal, not_equal
from rlx_core.ops.complex import complex_norm_sq
from rlx_core.ops.conversion import cast
from rlx_core.ops.selection import where


@checked_call
def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Any:
    """The norm of the vectors along one axis or several; of all elements by default.

    `ord` is 2, 1, 0 (the number of nonzero elements), inf, -inf, or another power p: (Σ|x|ᵖ)^(1/p). An element that is 0 has
    derivative 0.
    """
    result_dtype = expect_floating("vector_norm", x).component
    axes = axes_of(x, axis)

    def over(reduce: Any, y: Any) -> Any:
        return reduce(y, axis=axes, keepdims=keepdims)

    if ord in (math.inf, -math.inf):
        return over(max if ord > 0 else min, abs(x))
    if ord == 0:
        return cast(over(sum, cast(not_equal(x, 0), to=i64)), to=result_dtype)
    wide = cast(x, to=result_dtype.accumulator) if result_dtype.is_narrow else x
    if ord == 2:
        squares = complex_norm_sq(wide) if dtype_of(x).is_complex else square(wide)
        return _narrowed(sqrt(over(sum, squares)), result_dtype)
    if ord == 1:
        return _narrowed(over(sum, abs(wide)), result_dtype)
    return _narrowed(_power(over(sum, _power(abs(wide), float(ord))), 1.0 / float(ord)), result_dtype)


def _power(x: Any, exponent: float) -> Any:
    """Return x to a power, for nonnegative x; the derivative at 0 is 0, like that of √x."""
    is_zero = equal(x, 0)
    return where(is_zero, 0.0 if exponent > 0 else math.inf, pow(where(is_zero, 1, x), exponent))


def _narrowed(x: Any, to: DType) -> Any:
    return x if dtype_of(x) is to else cast(x, to=to)


MatrixNorm = Literal["fro", "nuc"] | float


@checked_call
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: MatrixNorm = "fro") -> Any:
    """The norm of matrices: fro, nuc (the sum of the singular values), ±2 (an extreme singular value), ±1 or ±inf (an extreme
    sum of the moduli of a column, or of a row).
    """
    expect_floating("matrix_norm", x)
    sides("matrix_norm", x)
    rank = len(shape_of(x))
    if ord == "fro":
        return vector_norm(x, axis=(rank - 2, rank - 1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        y = sum(s, axis=-1) if ord == "nuc" else max(s, axis=-1) if ord == 2 else min(s, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = sum(abs(x), axis=rank - 2 if ord in (1, -1) else rank - 1)
        y = max(sums, axis=-1) if ord in (1, math.inf) else min(sums, axis=-1)
    else:
        raise ShapeError(f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}")
    return expand_dims(y, (rank - 2, rank - 1)) if keepdims else y


@checked_call
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """NumPy's combined function: `vector_norm` of all elements or along one axis, `matrix_norm` over two.

    Args:
        x: Floating, of any shape.
        ord: As for the two functions; the root of the sum of squares by default.
        axis: One or two axes; by default, all elements are one vector, and with `ord` `x` is a vector or a matrix.
        keepdims: Whether these axes stay, with one element.

    Raises:
        ShapeError: `ord` is the order of a vector or matrix norm, and there are more axes.
    """
    rank = len(shape_of(x))
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    if not isinstance(ord, str):
        ord = number("norm: ord", ord)
    if axis is None and rank > 2:
        raise ShapeError(f"norm: with ord and {rank} axes, say over which one or two")
    axes = axes_of(x, axis)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ShapeError(f"norm: with ord it is over one or two axes, not {len(axes)}")
    y = matrix_norm(moveaxis(x, axes, (-2, -1)), ord=ord)
    return expand_dims(y, axes) if keepdims else y

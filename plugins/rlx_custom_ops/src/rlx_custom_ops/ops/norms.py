"""`norm` and `cond` with NumPy's signatures: functions composed of other functions, without a dedicated op."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import rlx_core as rlx
from rlx_core.errors import AxisError
from rlx_core.ops import Value, max, min
from rlx_custom_ops.ops.solve import inverse
from rlx_custom_ops.ops.svd import svd

__rlx_library__ = True

Order = float | Literal["fro", "nuc"] | None


def norm(x: Any, ord: Order = None, axis: int | tuple[int, int] | None = None, keepdims: bool = False) -> Any:
    """The norm of vectors or of matrices, as `numpy.linalg.norm` chooses between them.

    With one axis, vector norms are computed, with two, matrix norms; without `axis` the operand is one vector or matrix, and
    with neither `axis` nor `ord` all elements are one vector. Values of `ord` are documented in `rlx.linalg.vector_norm` and
    `matrix_norm`.

    Raises:
        AxisError: `ord` is given and `axis` is not, and `x` is neither a vector nor a matrix; or there are more than two axes.

    >>> float(norm(np.array([3.0, 4.0]))), float(norm(np.array([[3.0, 0.0], [0.0, 4.0]]), ord=2))
    (5.0, 4.0)
    """
    rank = np.ndim(x) if not isinstance(x, Value) else x.ndim
    if axis is None and ord is None:
        return rlx.linalg.vector_norm(x, keepdims=keepdims)
    axes = (axis,) if isinstance(axis, int) else tuple(range(rank)) if axis is None else tuple(axis)
    if len(axes) not in (1, 2):
        raise AxisError(f"norm: axis must name 1 axis of vectors or 2 of matrices, not {len(axes)}")
    if len(axes) == 1:
        if isinstance(ord, str):
            raise AxisError(f"norm: {ord!r} is a norm of matrices, which have 2 axes")
        return rlx.linalg.vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    last = rlx.moveaxis(x, axes, (-2, -1))
    result = rlx.linalg.matrix_norm(last, keepdims=keepdims, ord="fro" if ord is None else ord)
    return rlx.moveaxis(result, (-2, -1), axes) if keepdims else result


def cond(a: Any, ord: Order = None) -> Any:
    """The condition number, which bounds the growth of errors in a solve: the norm of `a` times the norm of its inverse.

    Without `ord`, and for 2, it is the largest singular value by the smallest, which rectangular matrices have too; of a
    singular matrix it is infinite. For -2 it is the reciprocal.

    Raises:
        SingularMatrixError: When the program runs, if `ord` is another norm, and a matrix has no inverse.

    >>> float(cond(np.diag([4.0, 2.0]))), float(cond(np.diag([4.0, 2.0]), ord=1))
    (2.0, 2.0)
    """
    if ord in (None, 2, -2):
        s = svd(a)[1]
        largest, smallest = max(s, axis=-1), min(s, axis=-1)
        return smallest / largest if ord == -2 else largest / smallest
    return norm(a, ord, axis=(-2, -1)) * norm(inverse(a), ord, axis=(-2, -1))

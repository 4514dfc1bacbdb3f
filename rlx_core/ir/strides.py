"""Memory layout of the elements of a value: strides in bytes, and when two index maps are the same bytes.

A value is *dense* when its elements lie in row-major order without gaps. The stride of an axis with one element is never
followed, so it takes no part in any comparison here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Final

from rlx_core.ir.types import TensorType

Strides = tuple[int, ...]

WIDEST: Final = 16
"""Bytes of the widest access that several elements share on devices; the alignment that such an access needs."""


def dense_strides(type: TensorType) -> Strides:
    """The strides of a row-major buffer of a static type.

    >>> from rlx_core.ir.types import spec
    >>> dense_strides(spec("f32[2, 3, 4]"))
    (48, 16, 4)
    """
    return type.dense_strides


def is_dense(type: TensorType, strides: Sequence[int]) -> bool:
    """Return whether `strides` visit the elements of a static type in row-major order without gaps."""
    if strides == type.dense_strides:
        return True
    shape = type.static_shape
    if 0 in shape:
        return True
    return all(d == 1 or s == w for d, s, w in zip(shape, strides, dense_strides(type), strict=True))


def extent(type: TensorType, strides: Sequence[int]) -> tuple[int, int]:
    """The first byte and the byte after the last that a view touches, counted from its byte offset."""
    shape = type.static_shape
    if 0 in shape:
        return 0, 0
    reach = [s * (d - 1) for d, s in zip(shape, strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + type.dtype.itemsize


def regrouped_strides(type: TensorType, strides: Sequence[int], shape: Sequence[int]) -> Strides | None:
    """The strides that make `shape` a row-major regrouping of a strided value without a copy, if there are any.

    Both shapes are cut into the shortest runs of axes with equal numbers of elements; a run can be regrouped when its
    own axes are dense relative to one another.
    """
    old = [(d, s) for d, s in zip(type.static_shape, strides, strict=True) if d != 1]
    if 0 in shape:
        return dense_strides(TensorType(type.dtype, tuple(shape)))
    result_strides: list[int] = []
    taken = 0
    axis = 0
    while axis < len(shape):
        if shape[axis] == 1:
            result_strides.append(type.dtype.itemsize)  # one element: never followed
            axis += 1
            continue
        run = [old[taken]]
        taken += 1
        first, sizes = axis, shape[axis]
        axis += 1
        elements = run[0][0]
        while elements != sizes:
            if elements < sizes:
                run.append(old[taken])
                elements *= old[taken][0]
                taken += 1
            else:
                sizes *= shape[axis]
                axis += 1
        if any(s != inner * t for (_, s), (inner, t) in pairwise(run)):
            return None
        inner_strides = accumulate(reversed(shape[first + 1 : axis]), mul, initial=run[-1][1])
        result_strides.extend(reversed(tuple(inner_strides)))
    return tuple(result_strides)

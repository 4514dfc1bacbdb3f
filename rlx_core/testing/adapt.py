"""Adaptation of one value to the type and range that an operand needs, in generated programs: by views, casts and squashing.

All of it is ordinary ops, so the path between two samples in a generated graph is itself a test of views and chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_core.ir.graph import Value
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, maximum, minimum, multiply
from rlx_core.ops.conversion import cast
from rlx_core.ops.movement import concat, flip, narrow
from rlx_core.ops.structural import expand, reshape, transpose

Way = Callable[[Value], Value]


def led_to(
    rng: np.random.Generator, have: TensorType, array: np.ndarray, want: TensorType, limits: tuple[float, float]
) -> Way | None:
    """Return a conversion of a value of type `have`, which is `array`, to type `want` between `limits`; `None` if none exists."""
    shaped = shaped_as(rng, have.static_shape, want.static_shape)
    if shaped is None:
        return None
    if have.dtype is not want.dtype and not (have.dtype.is_float and want.dtype.is_float):
        return None
    low, high = limits
    is_inside = array.size == 0 or not want.dtype.is_real or (array.min() >= low and array.max() <= high)
    if not is_inside and want.dtype.is_integer and low == -high and low < 0:
        is_inside = True  # a range that only keeps samples small

    def way(value: Value) -> Value:
        moved = shaped(value)
        moved = moved if have.dtype is want.dtype else cast(moved, dtype=want.dtype)
        if is_inside:
            return moved
        if want.dtype.is_integer:
            return minimum(maximum(moved, math.ceil(low)), math.floor(high))
        middle, half = (low + high) / 2, 0.99 * (high - low) / 2
        return add(multiply(tanh(moved), half), middle)

    return way


def shaped_as(rng: np.random.Generator, have: Sequence[int], want: Sequence[int]) -> Way | None:
    """Return a conversion to other dims: identity, reshape, broadcast, or a slice; `None` if it has too few elements."""
    have, want = tuple(have), tuple(want)
    if have == want:
        return lambda value: value
    if math.prod(have) == math.prod(want):
        return lambda value: reshape(value, shape=want)
    if broadcasts(have, want) and rng.random() < 0.7:
        return lambda value: expand(value, shape=want)
    count = math.prod(want)
    if math.prod(have) < count:
        return None
    start = int(rng.integers(math.prod(have) - count + 1))
    return lambda value: reshape(
        narrow(reshape(value, shape=(math.prod(have),)), axis=0, start=start, length=count), shape=want
    )


def broadcasts(have: Sequence[int], want: Sequence[int]) -> bool:
    """Return whether dims become others by broadcasting alone."""
    pairs = zip(reversed(have), reversed(want), strict=False)
    return len(have) <= len(want) and all(a in (1, b) for a, b in pairs)


def viewed(rng: np.random.Generator, type: TensorType) -> Callable[[Sequence[Value]], Any]:
    """A move: a chain of one to four views of a value of this type."""
    ways: list[Way] = []
    dims = type.static_shape
    for _ in range(int(rng.integers(1, 5))):
        way, dims = next_view(rng, dims)
        ways.append(way)

    def move(values: Sequence[Value]) -> Any:
        value = values[0]
        for way in ways:
            value = way(value)
        return value

    return move


def next_view(rng: np.random.Generator, dims: tuple[int, ...]) -> tuple[Way, tuple[int, ...]]:
    """One view of a value with these dims, and the dims that it has."""
    rank, size = len(dims), math.prod(dims)
    kind = str(rng.choice(["transpose", "reshape", "narrow", "stride", "expand", "flip", "halves"]))
    axis = int(rng.integers(rank)) if rank else 0
    if kind == "transpose" and rank > 1:
        order = tuple(int(a) for a in rng.permutation(rank))
        return (lambda v: transpose(v, permutation=order)), tuple(dims[a] for a in order)
    if kind == "narrow" and rank:
        start = int(rng.integers(dims[axis] + 1))
        length = int(rng.integers(dims[axis] - start + 1))
        if length:
            return (lambda v: narrow(v, axis=axis, start=start, length=length)), replaced(dims, axis, length)
    if kind == "stride" and rank and dims[axis] > 1:
        step = int(rng.integers(2, 4))
        length = -(-dims[axis] // step)
        return (lambda v: narrow(v, axis=axis, start=0, length=length, step=step)), replaced(dims, axis, length)
    if kind == "expand" and size <= 200 and rank < 4:
        wider = (int(rng.integers(1, 6)), *dims)
        return (lambda v: expand(v, shape=wider)), wider
    if kind == "flip" and rank:
        return (lambda v: flip(v, axes=(axis,))), dims
    if kind == "halves" and rank and dims[axis] > 1:
        cut = dims[axis] // 2
        remaining = dims[axis] - cut
        return (
            lambda v: concat(
                [narrow(v, axis=axis, start=cut, length=remaining), narrow(v, axis=axis, start=0, length=cut)],
                axis=axis,
            )
        ), dims
    divisors = [d for d in (2, 3, 4, 5, 7, 8, 11, 13, 16) if size and size % d == 0]
    shape: tuple[int, ...] = (size,)
    if divisors and rng.random() < 0.8:
        first = divisors[int(rng.integers(len(divisors)))]
        shape = (first, size // first) if rng.random() < 0.5 else (size // first, first)
    return (lambda v: reshape(v, shape=shape)), shape


def replaced(dims: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*dims[:axis], size, *dims[axis + 1 :])

"""Interpreter of loop kernels with NumPy on plain bytes: the oracle for tests of every printer.

Values have the dtype of registers: those of f16 and bf16 are f32, which only a cast and a store round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve

from rlx_core.codegen.loops import Apply, Bound, Combine, Const, Index, Kernel, Load, Reduce, Scalar, Store
from rlx_core.errors import IndexRangeError
from rlx_core.ops.conversion import Cast, cast_array

_UFUNC: dict[Combine, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def run_kernel(kernel: Kernel, buffers: Sequence[np.ndarray | None]) -> None:
    """Run a kernel on one-dimensional `uint8` arrays, one a buffer, whose first byte is where offsets count from.

    Raises:
        IndexRangeError: A checked index lies outside.
    """
    if 0 in kernel.extents[: kernel.grid]:
        return
    values: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for value in kernel.values:
            values.append(_evaluate(kernel, value, values, buffers))
        for store in kernel.stores:
            _write(kernel, store, values[store.value], buffers[store.buffer])


def value_of(kernel: Kernel, number: int, buffers: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return a value at every point of the index space; along axes with which it does not vary it has one element.

    Indices out of range are clamped, as if they were not checked.
    """
    values: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for value in kernel.values[: number + 1]:
            loose = evolve(value, is_checked=False) if isinstance(value, Bound) else value
            values.append(_evaluate(kernel, loose, values, buffers))
    return values[number]


def outside_of(kernel: Kernel, number: int, buffers: Sequence[np.ndarray | None]) -> tuple[int, int] | None:
    """Return the first point at which a checked index, the value `number`, is out of range, and the index; else `None`.

    Points are numbered along the grid, or along all axes if the index varies along rows.
    """
    bound = kernel.values[number]
    assert isinstance(bound, Bound), "indices are checked where they are bound"
    axes = len(kernel.extents) if kernel.varies[number] else kernel.grid
    indices = value_of(kernel, bound.arg, buffers)
    extents = [n if a < axes else 1 for a, n in enumerate(kernel.extents)]
    every = np.broadcast_to(indices, extents).reshape(-1)
    outside = np.flatnonzero((every < 0) | (every >= bound.size))
    return (int(outside[0]), int(every[outside[0]])) if outside.size else None


def _evaluate(
    kernel: Kernel, value: Scalar, values: Sequence[np.ndarray], buffers: Sequence[np.ndarray | None]
) -> np.ndarray:
    if isinstance(value, Const):
        return np.full((1,) * len(kernel.extents), value.number, value.dtype.numpy).astype(
            value.dtype.accumulator.numpy
        )
    if isinstance(value, Index):
        line = value.offset + value.scale * np.arange(kernel.extents[value.axis])
        return line.reshape([-1 if a == value.axis else 1 for a in range(len(kernel.extents))])
    if isinstance(value, Load):
        return _read(kernel, value, values, buffers[value.buffer])
    if isinstance(value, Bound):
        index = values[value.arg]
        outside = (index < 0) | (index >= value.size)
        if value.is_checked and outside.any():
            raise IndexRangeError(
                f"{kernel.name}: index {index[outside][0]} is outside an axis of {value.size} elements"
            )
        return np.clip(index, 0, value.size - 1)
    if isinstance(value, Reduce):
        operand = np.broadcast_to(values[value.arg], kernel.extents)
        axes, accumulator = tuple(kernel.row_axes), value.dtype.accumulator.numpy
        return np.asarray(_UFUNC[value.combine].reduce(operand, axis=axes, keepdims=True, dtype=accumulator))
    assert isinstance(value, Apply), f"{value!r} is no value of the loop language"
    assert value.op.reference is not None, f"{value.op.name} is a primitive"
    result = np.asarray(value.op.reference(*(values[a] for a in value.args)))
    if isinstance(value.op, Cast) or value.dtype.kind == "bool":
        result = cast_array(result, value.dtype)
    return result.astype(value.dtype.accumulator.numpy, copy=False)


def _places(strides: Sequence[int], offset: int, extents: Sequence[int]) -> np.ndarray:
    """The byte offset of the access at each point of the index space."""
    total = np.full((1,) * len(extents), offset, np.int64)
    for axis, (step, size) in enumerate(zip(strides, extents, strict=True)):
        if step:
            total = total + step * np.arange(size).reshape([-1 if a == axis else 1 for a in range(len(extents))])
    return total


def _read(kernel: Kernel, load: Load, values: Sequence[np.ndarray], data: np.ndarray | None) -> np.ndarray:
    assert data is not None, "an operand that is read is there"
    offsets = _places(load.strides, load.offset, kernel.extents)
    for value, stride in load.dynamic:
        offsets = offsets + values[value] * stride
    itemsize = load.dtype.itemsize
    picked = (
        data[offsets[..., None] + np.arange(itemsize)]
        if offsets.size
        else np.zeros((*offsets.shape, itemsize), np.uint8)
    )
    return np.ascontiguousarray(picked).view(load.dtype.numpy)[..., 0].astype(load.dtype.accumulator.numpy)


def _write(kernel: Kernel, store: Store, value: np.ndarray, data: np.ndarray | None) -> None:
    assert data is not None, "results are there"
    is_along = kernel.is_along_rows(store)
    extents = [n if is_along or a < kernel.grid else 1 for a, n in enumerate(kernel.extents)]
    offsets = np.broadcast_to(_places(store.strides, store.offset, extents), extents)
    stored = value.astype(kernel.buffers[store.buffer].accessed.numpy, copy=False)
    cells = np.ascontiguousarray(np.broadcast_to(stored, extents)).reshape(-1, 1).view(np.uint8)
    data[offsets.reshape(-1, 1) + np.arange(cells.shape[1])] = cells

"""Elements and windows at indices that are operands.

JAX's gather and scatter take windows of the operand at points of an index array. Where the windows are whole rows along one axis,
rlx's `take` and `scatter` say the same; otherwise every element of a window becomes a place in the flat operand.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import rlx_core as rlx
from rlx_jax.walk import Equation, handles, rows

MODES: dict[str, Literal["set", "add", "mul", "min", "max"]] = {
    "scatter": "set",
    "scatter-add": "add",
    "scatter-sub": "add",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


rows(
    {
        "dynamic_slice": lambda equation, x, *starts: rlx.dynamic_slice(
            x, starts[: len(equation["slice_sizes"])], equation.sizes.shape(equation["slice_sizes"])
        ),
        "dynamic_update_slice": lambda equation, x, update, *starts: rlx.dynamic_update_slice(x, update, starts),
    }
)


@handles("gather")
def gather(equation: Equation, x: Any, indices: Any) -> Any:
    numbers, shape = equation["dimension_numbers"], equation.sizes.shape(equation.operands[0].shape)
    windows = equation.sizes.shape(equation["slice_sizes"])
    inner = [d for d in range(len(shape)) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    starts, is_inside = start_of(equation, numbers.start_index_map, numbers.operand_batching_dims,
                                 numbers.start_indices_batching_dims, indices, shape, windows)  # fmt: skip
    points = starts[0].shape if starts else equation.sizes.shape(equation.operands[1].shape[:-1])
    result = rlx.take(rlx.reshape(x, (-1,)), places(starts, shape, windows, inner, points), out_of_bounds="clip")
    if is_inside is not None:
        fill = filling(equation)
        result = rlx.where(rlx.reshape(is_inside, (*points, *(1 for _ in inner))), result, fill)
    return placed(result, len(points), numbers.offset_dims)


@handles(*MODES)
def scatter(equation: Equation, x: Any, indices: Any, updates: Any) -> Any:
    numbers, shape = equation["dimension_numbers"], equation.sizes.shape(equation.operands[0].shape)
    inner = [d for d in range(len(shape)) if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)]
    windows: list[Any] = [1] * len(shape)
    for d, axis in zip(inner, numbers.update_window_dims, strict=True):
        windows[d] = equation.sizes.size(equation.operands[2].shape[axis])
    starts, is_inside = start_of(equation, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims,
                                 numbers.scatter_indices_batching_dims, indices, shape, windows)  # fmt: skip
    updates = rlx.negative(updates) if equation.name == "scatter-sub" else updates
    rank = len(equation.operands[2].shape)
    outer = [axis for axis in range(rank) if axis not in numbers.update_window_dims]
    rows = rlx.permute_dims(updates, (*outer, *numbers.update_window_dims)) if rank else updates
    position = places(
        starts, shape, windows, inner, equation.sizes.shape([equation.operands[2].shape[a] for a in outer])
    )
    if is_inside is not None:  # a place behind the last, which `fill` leaves out
        mask = rlx.reshape(is_inside, (*is_inside.shape, *(1 for _ in inner)))
        position = rlx.where(mask, position, size_of(shape))
    flat = rlx.reshape(x, (-1,))
    written = rlx.scatter(
        flat, rlx.reshape(position, (-1,)), rlx.reshape(rows, (-1,)), mode=MODES[equation.name], out_of_bounds="fill"
    )
    return rlx.reshape(written, shape)


def start_of(
    equation: Equation,
    targets: Any,
    batched: Any,
    batch_axes: Any,
    indices: Any,
    shape: tuple[Any, ...],
    windows: Any,
) -> tuple[list[Any], Any]:
    """Return the starts of each window, one array per axis of the operand, and which windows are inside if that matters."""
    mode = getattr(equation["mode"], "name", str(equation["mode"]))
    points = equation.sizes.shape(equation.operands[1].shape[:-1])
    starts: list[Any] = [None] * len(shape)
    inside = None
    wide = rlx.astype(indices, rlx.i64, copy=False)
    for number, d in enumerate(targets):
        start, last = wide[..., number], shape[d] - windows[d]
        if "FILL" in mode:
            matches = rlx.logical_and(start >= 0, start <= last)
            inside = matches if inside is None else rlx.logical_and(inside, matches)
        starts[d] = rlx.minimum(rlx.maximum(start, 0), last)
    for d, axis in zip(batched, batch_axes, strict=True):
        line = [1] * len(points)
        line[axis] = points[axis]
        starts[d] = rlx.broadcast_to(rlx.reshape(rlx.arange(points[axis]), tuple(line)), points)
    zero = rlx.zeros(points, dtype=rlx.i64)
    return [zero if each is None else each for each in starts], inside


def places(starts: list[Any], shape: tuple[Any, ...], windows: Any, inner: list[int], points: tuple[Any, ...]) -> Any:
    """The places in the flat operand: an axis a point, then one for each axis of the windows that is kept."""
    rank, total, stride = len(inner), rlx.zeros((*points, *(1 for _ in inner)), dtype=rlx.i64), 1
    for d in reversed(range(len(shape))):
        position = rlx.reshape(starts[d], (*points, *(1 for _ in inner)))
        if d in inner:
            line = [1] * rank
            line[inner.index(d)] = windows[d]
            position = position + rlx.reshape(rlx.arange(windows[d]), (*(1 for _ in points), *line))
        total = total + position * stride
        stride = stride * shape[d]
    return total


def placed(x: Any, points: int, offsets: Any) -> Any:
    """The result with the axes of the windows where they belong; they come last in `x`."""
    rank = len(x.shape)
    order, outer = [0] * rank, iter(range(points))
    for number, axis in enumerate(offsets):
        order[axis] = points + number
    for axis in range(rank):
        if axis not in offsets:
            order[axis] = next(outer)
    return rlx.permute_dims(x, tuple(order)) if rank else x


def filling(equation: Equation) -> np.ndarray:
    """Return the fill value of a gather: its parameter, or else NaN, the largest unsigned, the smallest signed integer."""
    dtype = np.dtype(equation.results[0].dtype)
    constant = equation.params.get("fill_value")
    if constant is not None:
        return np.asarray(constant, dtype)
    if dtype.kind == "b":
        return np.asarray(True)
    if dtype.kind in "iu":
        return np.asarray(np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min, dtype)
    return np.asarray(np.nan, dtype)


def size_of(shape: tuple[Any, ...]) -> Any:
    total: Any = 1
    for each in shape:
        total = total * each
    return total

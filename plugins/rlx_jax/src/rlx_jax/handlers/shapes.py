"""Shapes: what moves elements and computes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_jax.walk import Equation, handles, rows


@handles("broadcast_in_dim")
def broadcast_in_dim(equation: Equation, x: Any, *sizes: Any) -> Any:
    shape = equation.shape
    shape_of_axis = [1] * len(shape)
    for axis, size in zip(equation["broadcast_dimensions"], equation.operands[0].shape, strict=True):
        shape_of_axis[axis] = equation.sizes.size(size)
    return rlx.broadcast_to(rlx.reshape(x, tuple(shape_of_axis)), shape)


@handles("reshape")
def reshape(equation: Equation, x: Any, *sizes: Any) -> Any:
    order = equation.params.get("dimensions")
    return rlx.reshape(x if order is None else rlx.permute_dims(x, order), equation.shape)


rows(
    {
        "squeeze expand_dims": lambda equation, x: rlx.reshape(x, equation.shape),
        "tile": lambda equation, x: rlx.tile(x, equation["reps"]),
        "transpose": lambda equation, x: rlx.permute_dims(x, equation["permutation"]),
        "concatenate": lambda equation, *x: rlx.concat(x, axis=equation["dimension"]),
        "stack": lambda equation, *x: rlx.stack(x, axis=equation["axis"]),
        "unstack": lambda equation, x: list(rlx.unstack(x, axis=equation["axis"])),
        "rev": lambda equation, x: rlx.flip(x, axis=tuple(equation["dimensions"])) if equation["dimensions"] else x,
        "empty empty2": lambda equation: rlx.zeros(equation.shape, dtype=equation.results[0].dtype),
        "dim_as_value": lambda equation: rlx.astype(
            rlx.asarray(equation.sizes.size(equation["dim"])), equation.results[0].dtype
        ),
    }
)


@handles("split")
def split(equation: Equation, x: Any) -> list[Any]:
    ends = np.cumsum([equation.sizes.size(each) for each in equation["sizes"]]).tolist()
    return list(rlx.split(x, ends[:-1], axis=equation["axis"]))


@handles("slice")
def sliced(equation: Equation, x: Any) -> Any:
    starts, limits = (equation.sizes.shape(equation[each]) for each in ("start_indices", "limit_indices"))
    steps = equation["strides"] or (1,) * len(starts)
    return x[tuple(slice(*each) for each in zip(starts, limits, steps, strict=True))]


@handles("pad")
def pad(equation: Equation, x: Any, value: Any) -> Any:
    """Cells around and between elements; negative ones crop."""
    widths = [tuple(map(equation.sizes.size, each)) for each in equation["padding_config"]]
    for axis, (_, _, between) in enumerate(widths):
        x = spread(x, axis, between, value) if between else x
    return rlx.pad(x, [(lo, hi) for lo, hi, _ in widths], constant_values=value)


def spread(x: Any, axis: int, between: int, value: Any) -> Any:
    """Cells between the elements of an axis: each element gets its cells behind it, and the last loses them."""
    shape = x.shape
    separate = rlx.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    widths = [(0, 0)] * len(separate.shape)
    widths[axis + 1] = (0, between)
    joined = (*shape[:axis], shape[axis] * (1 + between), *shape[axis + 1 :])
    crop = [(0, 0)] * len(shape)
    crop[axis] = (0, -between)
    return rlx.pad(rlx.reshape(rlx.pad(separate, widths, constant_values=value), joined), crop, constant_values=value)


@handles("iota")
def iota(equation: Equation, *sizes: Any) -> Any:
    shape, axis = equation.shape, equation["dimension"]
    line = rlx.astype(rlx.arange(shape[axis]), equation["dtype"])
    shape_of_axis = [1] * len(shape)
    shape_of_axis[axis] = shape[axis]
    return rlx.broadcast_to(rlx.reshape(line, tuple(shape_of_axis)), shape)

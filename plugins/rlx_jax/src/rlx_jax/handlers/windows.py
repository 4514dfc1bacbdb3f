"""Reductions over windows: one strided slice for each place in a window, combined."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np
from attrs import evolve

import rlx_core as rlx
from rlx_core.importing.walk import refuse
from rlx_jax.handlers.shapes import spread
from rlx_jax.walk import Equation, handles, rows

MOST_PLACES = 1024
"""A window of more places would be a program of more steps."""


rows(
    {
        "reduce_window_sum": lambda equation, x: windows(equation, x, 0, rlx.add),
        "reduce_window_max": lambda equation, x: windows(equation, x, lowest(equation.operands[0].dtype), rlx.maximum),
        "reduce_window_min": lambda equation, x: windows(equation, x, highest(equation.operands[0].dtype), rlx.minimum),
    }
)


@handles("select_and_scatter_add")
def select_and_scatter_add(equation: Equation, source: Any, x: Any) -> Any:
    """The gradient of a largest or smallest element of each window: it is added at the first such element."""
    keeps = {"ge": rlx.greater_equal, "le": rlx.less_equal}.get(equation["select_prim"].name)
    if keeps is None:
        refuse(subject=f"select_and_scatter_add by {equation['select_prim'].name}")
    neutral = (lowest if keeps is rlx.greater_equal else highest)(equation.operands[1].dtype)
    rank = len(equation.operands[1].shape)
    params = {"window_dilation": (1,) * rank, "base_dilation": (1,) * rank, **equation.params}
    chosen = evolve(equation, params=params, results=equation.operands[:1])

    def extremes(x: Any) -> Any:
        return windows(chosen, x, neutral, lambda result, cut: rlx.where(keeps(result, cut), result, cut))

    return rlx.vjp(extremes, x)[1](source)[0]


def lowest(dtype: Any) -> Any:
    return np.asarray(-np.inf if np.dtype(dtype).kind not in "iub" else np.iinfo(dtype).min, dtype)


def highest(dtype: Any) -> Any:
    return np.asarray(np.inf if np.dtype(dtype).kind not in "iub" else np.iinfo(dtype).max, dtype)


def windows(equation: Equation, x: Any, neutral: Any, combine: Callable[[Any, Any], Any]) -> Any:
    sizes, steps, gaps = (equation[each] for each in ("window_dimensions", "window_strides", "window_dilation"))
    if prod(sizes) > MOST_PLACES:
        refuse(subject=f"{equation.name} of {prod(sizes)} places")
    for axis, between in enumerate(equation["base_dilation"]):
        x = spread(x, axis, between - 1, neutral) if between > 1 else x
    padded = rlx.pad(
        x, [tuple(map(equation.sizes.size, each)) for each in equation["padding"]], constant_values=neutral
    )
    shape, result = equation.shape, None
    for place in product(*map(range, sizes)):
        starts = [position * gap for position, gap in zip(place, gaps, strict=True)]
        spans = [(count - 1) * step + 1 for count, step in zip(shape, steps, strict=True)]
        cut = padded[tuple(slice(a, a + n, s) for a, n, s in zip(starts, spans, steps, strict=True))]
        result = cut if result is None else combine(result, cut)
    return result

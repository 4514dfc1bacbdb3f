"""Over axes and windows: totals, extremes, running totals, orders."""

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

TOTALS: dict[str, Callable[..., Any]] = {
    "reduce_max": rlx.max,
    "reduce_min": rlx.min,
    "reduce_and": rlx.all,
    "reduce_or": rlx.any,
}

rows(
    {
        name: lambda equation, x, _function=function: _function(logical(equation, x), axis=tuple(equation["axes"]))
        for name, function in TOTALS.items()
    }
)


@handles("reduce_sum", "reduce_prod")
def total(equation: Equation, x: Any) -> Any:
    """The sum or product in the dtype of the operand; integers wrap."""
    function: Callable[..., Any] = rlx.sum if equation.name == "reduce_sum" else rlx.prod
    return function(x, axis=tuple(equation["axes"]), dtype=equation.results[0].dtype)


MONOIDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (rlx.sum, rlx.add),
    "mul": (rlx.prod, rlx.multiply),
    "max": (rlx.max, rlx.maximum),
    "min": (rlx.min, rlx.minimum),
    "and": (rlx.all, rlx.logical_and),
    "or": (rlx.any, rlx.logical_or),
}
"""Primitive that combines two elements → the reduction of an axis, and the combination with the initial value."""


@handles("reduce")
def reduce(equation: Equation, x: Any, first: Any) -> list[Any]:
    """Reduction of one operand, by a function that is a known primitive."""
    inner, logic = equation["jaxpr"], ("and", "or")
    name = inner.eqns[0].primitive.name if len(inner.eqns) == 1 else "a function of its own"
    is_plain = name in MONOIDS and [*inner.eqns[0].invars] in (inner.invars, inner.invars[::-1])
    if not is_plain or (name in logic and equation.operands[0].dtype != bool):
        refuse(subject=f"reduce by {name}")
    full, pair = MONOIDS[name]
    dtype = {"dtype": equation.results[0].dtype} if name in ("add", "mul") else {}
    return [pair(full(x, axis=tuple(equation["dimensions"]), **dtype), first)]


def logical(equation: Equation, x: Any) -> Any:
    """The operand; and, or are only had of bool."""
    if equation.name in ("reduce_and", "reduce_or") and equation.operands[0].dtype != bool:
        refuse(subject=f"{equation.name} of integers")
    return x


@handles("reduce_xor")
def reduce_xor(equation: Equation, x: Any) -> Any:
    if equation.operands[0].dtype != bool:
        refuse(subject="reduce_xor of integers")
    return rlx.equal(rlx.remainder(rlx.count_nonzero(x, axis=tuple(equation["axes"])), 2), 1)


@handles("argmax", "argmin")
def extreme(equation: Equation, x: Any) -> Any:
    (axis,) = equation["axes"]
    return rlx.astype(getattr(rlx, equation.name)(x, axis=axis), equation["index_dtype"])


@handles("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def running(equation: Equation, x: Any) -> Any:
    axis = equation["axis"]
    functions: dict[str, Callable[[Any], Any]] = {
        "cumsum": lambda x: rlx.cumulative_sum(x, axis=axis, dtype=equation.results[0].dtype),
        "cumprod": lambda x: rlx.cumulative_prod(x, axis=axis, dtype=equation.results[0].dtype),
        "cummax": lambda x: rlx.cumulative_max(x, axis=axis),
        "cummin": lambda x: rlx.cumulative_min(x, axis=axis),
        "cumlogsumexp": lambda x: rlx.cumulative_logsumexp(x, axis=axis),
    }
    run = functions[equation.name]
    return rlx.flip(run(rlx.flip(x, axis=axis)), axis=axis) if equation["reverse"] else run(x)


@handles("sort")
def sort(equation: Equation, *x: Any) -> list[Any]:
    """Sort by the first operands; the others are permuted with them."""
    axis, keys = equation["dimension"], equation["num_keys"]
    if len(x) == 1:
        return [rlx.sort(x[0], axis=axis)]
    result = list(x)
    for number in reversed(
        range(keys)
    ):  # the last key first: each stable sort keeps the order of the previous ones for equal keys
        order = rlx.argsort(result[number], axis=axis, stable=True)
        result = [rlx.take_along_axis(each, order, axis=axis) for each in result]
    return result


@handles("approx_top_k")
def approx_top_k(equation: Equation, x: Any) -> list[Any]:
    """All of them: none is missed."""
    axis, count = equation["reduction_dimension"], equation.sizes.size(equation["k"])
    values, places = rlx.top_k(x, count, axis=axis, largest=equation["is_max_k"])
    return [values, rlx.astype(places, equation.results[1].dtype)]


@handles("top_k")
def top_k(equation: Equation, x: Any) -> list[Any]:
    values, places = rlx.top_k(x, equation.sizes.size(equation["k"]), axis=equation.params.get("axis", -1))
    return [values, rlx.astype(places, equation.results[1].dtype)]


# --------------------------------------------------------------------------------------------- windows


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

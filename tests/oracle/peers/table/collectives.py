"""Sums, means, extremes and positions over the examples of a mapped axis that has a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

import rlx_core as rlx

from ..rows import COMPLEX, FLOATS, INTEGERS, WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

ALL = ("dtype", "forward", "gradient", "jvp", "batch", "second")
VALUES = ("forward", "batch")


def over(xp: Any, function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """`function` of the two libraries' collectives, mapped over the first axes of its arguments, which have these names."""
    ops = rlx if xp is rlx else lax
    mapped = lambda *args: function(ops, *args)  # noqa: E731
    for name in reversed(names):
        mapped = xp.vmap(mapped, axis_name=name)
    return mapped


def row(
    name: str, function: Callable[..., Any], rank: int = 2, names: tuple[str, ...] = ("i",), **settings: Any
) -> Row:
    def cases(d: Draw) -> Any:
        return (d.apart(d.shape(rank)) if settings.get("asks") == VALUES else d.floats(d.shape(rank)),), {}

    return Row(name, over(rlx, function, *names), cases, None, over(jax, function, *names), **settings)


def whole(name: str, function: Callable[..., Any]) -> Row:
    def cases(d: Draw) -> Any:
        return (d.elements.integers(0, 50, d.shape(2)).astype(d.dtype),), {}

    return Row(
        name, over(rlx, function, "i"), cases, None, over(jax, function, "i"), dtypes=INTEGERS, asks=("dtype", *VALUES)
    )


def scanned(ops: Any, x: Any) -> Any:
    scan = rlx.scan if ops is rlx else lax.scan
    return scan(lambda c, t: (c * 0.5 + ops.psum(c * t, "i"), ops.pmean(c, "i")), x[0], x)


def repeated(ops: Any, x: Any) -> Any:
    loop = rlx.while_loop if ops is rlx else lax.while_loop
    return loop(lambda c: ops.pmax(c, "i").max() < 50, lambda c: 2 * c + 1 + ops.pmean(c, "i"), x * x)


def chosen(ops: Any, x: Any) -> Any:
    cond = rlx.cond if ops is rlx else lax.cond
    return cond(ops.psum(x.sum(), "i") > 0, lambda x: x * ops.psum(x, "i"), lambda x: x - ops.pmean(x, "i"), x)


def gradients(ops: Any, x: Any) -> Any:
    grad = rlx.grad if ops is rlx else jax.grad
    return grad(lambda x: (ops.psum(x * x, "i") * x).sum())(x)


FAMILY = Family(
    "Collectives over a mapped axis",
    [
        row("psum", lambda ops, x: x * ops.psum(x * x, "i"), dtypes=FLOATS, asks=ALL, slack=64),
        row("psum of complex numbers", lambda ops, x: x * ops.psum(x * x, "i"), dtypes=COMPLEX, slack=64),
        row("psum over two axes", lambda ops, x: x * ops.psum(x * x, ("i", "j")), 3, ("i", "j"), dtypes=WIDE, asks=ALL,
            slack=64),
        row("psum over the outer of two axes", lambda ops, x: x * ops.psum(x * x, "i"), 3, ("i", "j"), dtypes=WIDE,
            asks=ALL),
        row("psum over the inner of two axes", lambda ops, x: x * ops.psum(x * x, "j"), 3, ("i", "j"), dtypes=WIDE,
            asks=ALL),
        row("psum of a constant", lambda ops, x: x * ops.psum(3, "i") + ops.psum(np.float32(2), "i"), asks=ALL),
        row("pmean", lambda ops, x: (x - ops.pmean(x, "i")) ** 2, dtypes=FLOATS, asks=ALL, slack=64),
        row("pmax", lambda ops, x: ops.pmax(x, "i"), asks=VALUES),
        row("pmin", lambda ops, x: ops.pmin(x, "i"), asks=VALUES),
        row("grad of psum inside of vmap", gradients, dtypes=WIDE, asks=ALL, slack=64),
        row("psum inside of scan", scanned, dtypes=WIDE, asks=ALL, slack=256, why="errors of a step are carried into the next"),
        row("psum inside of cond", chosen, dtypes=WIDE, asks=ALL, slack=64),
        row("pmax in the condition of while", repeated, dtypes=WIDE, asks=("dtype", *VALUES), slack=64),
        whole("psum of integers", lambda ops, x: ops.psum(x, "i")),
        whole("axis_index", lambda ops, x: x * 0 + ops.axis_index("i").astype(x.dtype)),
    ],
)  # fmt: skip
"""JAX has no derivative of `pmax`, and no reverse mode of `while_loop`."""

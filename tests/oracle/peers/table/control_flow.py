"""Branches and loops: what is chosen, what is carried, what is stacked, in each other, and back through all of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

import rlx_core as rlx

from ..rows import WIDE, Draw, Family, Row

__all__ = ["FAMILY"]

WHY = "errors of a step are carried into the next"
ALL = ("dtype", "forward", "gradient", "jvp", "batch", "second")


def looped(name: str, ours: Any, cases: Any, torch_: Any, jax_: Any, **more: Any) -> Row:
    """A row of which second derivatives are asked too; in wide dtypes, since steps add up their rounding."""
    return Row(name, ours, cases, torch_, jax_, **{"dtypes": WIDE, "asks": ALL, "slack": 256, "why": WHY, **more})


def choice(d: Draw) -> Any:
    shape = d.shape(2)
    return (d.bools(()), d.floats(shape), d.floats(shape)), {}


def of_three(d: Draw) -> Any:
    # Indices outside mean the first or the last branch.
    return (np.asarray(d.elements.integers(-1, 4), np.int32), d.floats(d.shape(2))), {}


def long_recurrence(d: Draw) -> Any:
    return recurrence(d, (2, 5, 9))


def recurrence(d: Draw, lengths: Sequence[int] = (0, 1, 4, 7)) -> Any:
    """A matrix for the carry, the carry, and what comes in at each step."""
    n, length = d.size(1, 5), d.choice(lengths)
    args = d.floats((n, n), -0.6, 0.6), d.floats((n,)), d.floats((length, n))
    return args, {"reverse": d.choice([False, True])}


def scanned(xp: Any, scan: Any) -> Any:
    def function(w: Any, h: Any, xs: Any, *, reverse: bool) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = xp.tanh(w @ h + x)
            return h, h * x

        return scan(step, h, xs, reverse=reverse)

    return function


def torch_scan(body: Any, init: Any, xs: Any, reverse: bool = False, length: int | None = None) -> Any:
    """The loop in Python; what comes in and goes out is one tensor, or none."""
    count = length if xs is None else len(xs)
    assert count is not None
    carry, ys = init, []
    for i in reversed(range(count)) if reverse else range(count):
        carry, y = body(carry, None if xs is None else xs[i])
        ys.append(y)
    if not ys:  # the dims of what a step gives are known from a step whose results nobody reads
        _, y = body(init, None if xs is None else xs.new_zeros(xs.shape[1:]))
        return carry, torch.stack([y])[:0]
    return carry, torch.stack(ys[::-1] if reverse else ys)


def with_pytrees(xp: Any, scan: Any, stack: Any = None) -> Any:
    """Two carries of different dims, two inputs, and as result a nested structure."""

    def function(w: Any, state: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, total = carry["h"], carry["total"]
            a, b = x
            h = xp.tanh(w @ h + a) * b
            return {"h": h, "total": total + h.sum()}, (h, (a * total, h.sum()))

        return scan(step, {"h": state, "total": (w * 0).sum()}, xs)

    return function


def torch_with_pytrees(w: Any, h: Any, xs: Any) -> Any:
    total, rows = (w * 0).sum(), []
    for a, b in zip(*xs, strict=True):
        before, h = total, torch.tanh(w @ h + a) * b
        total = total + h.sum()
        rows.append((h, a * before, h.sum()))
    each = [torch.stack(column) for column in zip(*rows, strict=True)]
    return {"h": h, "total": total}, (each[0], (each[1], each[2]))


def pytrees(d: Draw) -> Any:
    n, length = d.size(1, 4), d.size(1, 5)
    return (d.floats((n, n), -0.6, 0.6), d.floats((n,)), (d.floats((length, n)), d.floats((length,), 0.5, 1.0))), {}


def nested(xp: Any, scan: Any, cond: Any, fori: Any) -> Any:
    """A loop with a branch in it, of which one side is another loop."""

    def function(w: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            grown = lambda h: fori(0, 3, lambda i, h: xp.sin(w @ h) + 0.1 * x * (i + 1), h)  # noqa: E731
            h = cond(x[0] > 0, grown, lambda h: h * x, h)
            return h, (h * h).sum()

        return scan(step, h, xs)

    return function


def torch_cond(predicate: Any, yes: Any, no: Any, *operands: Any) -> Any:
    return yes(*operands) if bool(predicate) else no(*operands)


def torch_fori(low: int, high: int, body: Any, carry: Any) -> Any:
    for i in range(low, high):
        carry = body(i, carry)
    return carry


def until_small(d: Draw) -> Any:
    return (d.floats((d.size(1, 5),), 1.0, 30.0),), {}


def halved(xp: Any, loop: Any, one: Any) -> Any:
    return lambda x: loop(lambda c: (c[0] * c[0]).sum() > 4.0, lambda c: (c[0] * 0.6, c[1] + 1), (x, one))


def torch_while(condition: Any, body: Any, carry: Any) -> Any:
    while bool(condition(carry)):
        carry = body(carry)
    return carry


def powers(d: Draw) -> Any:
    return (d.floats(d.shape(2), 0.5, 1.1),), {"count": d.size(0, 6)}


def elements(d: Draw) -> Any:
    rank = d.size(1, 3)
    return (d.floats(d.shape(rank, high=7), 0.4, 1.2),), {
        "axis": d.size(0, rank - 1),
        "reverse": d.choice([False, True]),
    }


def torch_products(x: Any, *, axis: int, reverse: bool) -> Any:
    return x.flip(axis).cumprod(axis).flip(axis) if reverse else x.cumprod(axis)


def rows_of(d: Draw) -> Any:
    n = d.size(1, 5)
    return (d.floats((n, n)), d.floats((d.size(1, 5), n))), {}


BRANCHES = ("sin", "cos", "tanh")

FAMILY = Family(
    "Control flow",
    [
        looped(
            "cond",
            lambda p, a, b: rlx.cond(p, lambda a, b: rlx.sin(a) * b, lambda a, b: a - b * b, a, b),
            choice,
            lambda p, a, b: torch_cond(p, lambda a, b: torch.sin(a) * b, lambda a, b: a - b * b, a, b),
            lambda p, a, b: lax.cond(p, lambda a, b: jnp.sin(a) * b, lambda a, b: a - b * b, a, b),
        ),
        looped(
            "switch",
            lambda i, x: rlx.switch(i, [getattr(rlx, f) for f in BRANCHES], x),
            of_three,
            lambda i, x: getattr(torch, BRANCHES[min(max(int(i), 0), 2)])(x),
            lambda i, x: lax.switch(i, [getattr(jnp, f) for f in BRANCHES], x),
        ),
        looped(
            "scan, both ways, length 0",
            scanned(rlx, rlx.scan),
            recurrence,
            scanned(torch, torch_scan),
            scanned(jnp, lax.scan),
        ),
        looped(
            "scan(checkpoints=2)",
            scanned(rlx, functools.partial(rlx.scan, checkpoints=2)),
            long_recurrence,
            scanned(torch, torch_scan),
            None,
            note="`jax.checkpoint` around a step; PyTorch's `checkpoint` around a segment",
        ),
        looped(
            "scan of pytrees",
            with_pytrees(rlx, rlx.scan),
            pytrees,
            torch_with_pytrees,
            with_pytrees(jnp, lax.scan),
        ),
        looped(
            "scan of cond of fori_loop",
            nested(rlx, rlx.scan, rlx.cond, rlx.fori_loop),
            lambda d: (recurrence(d)[0], {}),
            nested(torch, torch_scan, torch_cond, torch_fori),
            nested(jnp, lax.scan, lax.cond, lax.fori_loop),
        ),
        looped(
            "while_loop",
            halved(rlx, rlx.while_loop, np.int32(0)),
            until_small,
            halved(torch, torch_while, torch.tensor(0, dtype=torch.int32)),
            halved(jnp, lax.while_loop, jnp.int32(0)),
            asks={"dtype", "forward", "jvp", "batch"},
        ),
        looped(
            "while_loop(max_steps=20), backwards",
            halved(rlx, lambda *a: rlx.while_loop(*a, max_steps=20), np.int32(0)),
            until_small,
            halved(torch, torch_while, torch.tensor(0, dtype=torch.int32)),
            None,
            note="JAX has no reverse mode for `while_loop`",
        ),
        looped(
            "fori_loop",
            lambda x, *, count: rlx.fori_loop(0, count, lambda i, c: c * x + i, x),
            powers,
            lambda x, *, count: torch_fori(0, count, lambda i, c: c * x + i, x),
            lambda x, *, count: lax.fori_loop(0, count, lambda i, c: c * x + i, x),
        ),
        looped(
            "map",
            lambda w, xs: rlx.map(lambda x: rlx.tanh(w @ x), xs),
            rows_of,
            lambda w, xs: torch.stack([torch.tanh(w @ x) for x in xs]),
            lambda w, xs: lax.map(lambda x: jnp.tanh(w @ x), xs),
        ),
        looped(
            "associative_scan",
            lambda x, *, axis, reverse: rlx.associative_scan(lambda a, b: a * b, x, axis=axis, reverse=reverse),
            elements,
            torch_products,
            lambda x, *, axis, reverse: lax.associative_scan(lambda a, b: a * b, x, axis=axis, reverse=reverse),
        ),
        looped(
            "grad inside of scan",
            lambda x: rlx.scan(lambda c, _: (c - 0.1 * rlx.grad(lambda c: (c**4 * x).sum())(c), None), x, length=4)[0],
            lambda d: ((d.floats((3,), 0.2, 0.9),), {}),
            lambda x: torch_fori(0, 4, lambda i, c: c - 0.4 * c**3 * x, x),
            lambda x: lax.scan(lambda c, _: (c - 0.1 * jax.grad(lambda c: (c**4 * x).sum())(c), None), x, length=4)[0],
        ),
        looped(
            "vmap inside of cond",
            lambda p, a, b: rlx.cond(p, rlx.vmap(lambda a, b: (a * b).sum()), lambda a, b: a[:, 0], a, b),
            choice,
            lambda p, a, b: (a * b).sum(1) if bool(p) else a[:, 0],
            lambda p, a, b: lax.cond(p, jax.vmap(lambda a, b: (a * b).sum()), lambda a, b: a[:, 0], a, b),
        ),
    ],
)

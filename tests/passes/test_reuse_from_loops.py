"""Products that a loop computed are read by the loop behind it that would compute them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph
from rlx_core.ops.control.scan import Scan
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context
from rlx_core.passes.reuse_from_loops import LEAST_TERMS, ReuseFromLoops

N = LEAST_TERMS
RNG = np.random.default_rng(3)
W, U = RNG.normal(size=(2, N, N)) / N
C = RNG.normal(size=(2, N))
XS = RNG.normal(size=(3, 2, N))


def loss(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """One product of the carry, of which the sum with another is kept."""
    last, ys = rlx.scan(lambda c, x: ((h := rlx.tanh(x @ u + c @ w)), h * h), c, xs)
    return rlx.sum(last) + rlx.sum(ys)


def two(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """Two carries, each with a product of its own."""

    def step(carries: Any, x: Any) -> Any:
        a, b = carries
        return (rlx.tanh(a @ w + x), rlx.sin(b @ u) * a), None

    a, b = rlx.scan(step, (c, c), xs)[0]
    return rlx.sum(a * b)


def backwards(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """The other direction, and the product is read twice."""

    def step(c: Any, x: Any) -> Any:
        z = c @ w
        return rlx.tanh(z + x) * z, None

    return rlx.sum(rlx.scan(step, c, xs, reverse=True)[0])


def nested(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """A loop in a loop, whose derivative goes over both again."""

    def outer(c: Any, x: Any) -> Any:
        return rlx.scan(lambda c, y: (rlx.sin(c @ w + x * y), None), c, xs)[0], None

    return rlx.sum(rlx.scan(outer, c, xs)[0])


def gradient(function: Callable[..., Any]) -> Graph:
    """All gradients, each value once, as the pass finds them in a pipeline."""
    graph = rlx.trace(rlx.grad(function, argnums=(0, 1, 2, 3)), W, U, C, XS)
    for each in (CommonSubexpressions(), DeadCode(), CommonSubexpressions(), DeadCode()):
        graph = each.run(graph, Context()).graph
    return graph


def products(graph: Graph) -> int:
    """Products in loops, wherever they are nested."""
    bodies = [n.op.body for n in graph.nodes if isinstance(n.op, Scan)]
    return sum((n.op.title == "matmul") for body in bodies for n in body.nodes) + sum(map(products, bodies))


def results(graph: Graph) -> list[np.ndarray]:
    return list(rlx.interpret(graph, dict(zip(graph.input_types, (W, U, C, XS), strict=True))))


@pytest.mark.parametrize(("function", "fewer"), [(loss, 2), (two, 2), (backwards, 1), (nested, 1)])
def test_products_are_not_computed_again(function: Callable[..., Any], fewer: int) -> None:
    graph = gradient(function)
    reused = ReuseFromLoops().run(graph, Context())
    assert products(graph) - products(reused.graph) == fewer
    assert sum(reused.counts.values()) >= 1
    for before, after in zip(results(graph), results(reused.graph), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)
    assert ReuseFromLoops().run(reused.graph, Context()).graph is reused.graph


def test_a_value_that_two_loops_behind_read_is_returned_once() -> None:
    def twice(w: Any, c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return rlx.tanh(c @ w + x), c

        (_, before) = rlx.scan(step, c, xs)
        again = [rlx.scan(lambda s, now: (s + now[0] @ w + now[1], None), c, (before, xs))[0] for _ in range(2)]
        return again[0] * again[1]

    graph = rlx.trace(twice, W, C, XS)
    reused = ReuseFromLoops().run(graph, Context()).graph
    first, *others = [n for n in reused.nodes if isinstance(n.op, Scan)]
    assert [len(first.results), products(reused)] == [3, 1]
    assert all(any(v is first.results[2] for v in other.present()) for other in others)
    given = {"w": W, "c": C, "xs": XS}
    np.testing.assert_allclose(rlx.interpret(reused, given)[0], rlx.interpret(graph, given)[0], rtol=1e-12)


def other_weight(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """The later loop multiplies by something else."""
    before = rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), c), c, xs)[1]
    return rlx.scan(lambda s, x: (s + x @ u, None), c, before)[0]


def shifted(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """The later loop reads what the carry is after a step, which the earlier one multiplies one step later."""
    after = rlx.scan(lambda c, x: ((h := rlx.tanh(c @ w + x)), h), c, xs)[1]
    return rlx.scan(lambda s, x: (s + x @ w, None), c, after)[0]


def short(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """Sums of few terms."""
    before = rlx.scan(lambda c, x: (c + c[:, :4] @ w[:4], c), c, xs)[1]
    return rlx.scan(lambda s, x: (s + x[:, :4] @ w[:4], None), c, before)[0]


@pytest.mark.parametrize("function", [other_weight, shifted, short])
def test_other_values_and_small_ones_stay(function: Callable[..., Any]) -> None:
    graph = rlx.trace(function, W, U, C, XS)
    assert ReuseFromLoops().run(graph, Context()).graph is graph


def test_segments_are_computed_again_all_the_same() -> None:
    """What `checkpoints` asks for: memory for the carries of a few steps."""

    def step(c: Any, x: Any) -> Any:
        return rlx.tanh(c @ W + x), None

    grad = rlx.grad(lambda c, xs: rlx.sum(rlx.scan(step, c, xs, checkpoints=3)[0]))
    graph = ReuseFromLoops().run(rlx.trace(grad, C, XS), Context()).graph
    first = next(n for n in graph.nodes if isinstance(n.op, Scan))
    assert [t.shape for t in first.types[1:]] == [(3, 2, N)], "a carry a segment"

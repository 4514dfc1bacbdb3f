"""What no step changes is computed before the loop, and what depends on a step alone for all steps at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph
from rlx_core.ops.control.scan import Scan
from rlx_core.passes.engine.base import Context
from rlx_core.passes.hoist_from_loops import HoistFromLoops

RNG = np.random.default_rng(2)
W, U = RNG.normal(size=(2, 4, 4)) * 0.4
C = RNG.normal(size=4)
XS = RNG.normal(size=(5, 4))


def bodies(graph: Graph) -> list[Graph]:
    found = [n.op.body for n in graph.nodes if isinstance(n.op, Scan)]
    return [*found, *(inner for body in found for inner in bodies(body))]


def ops(graph: Graph) -> list[str]:
    """The titles of what is computed in loops, but for reshapes."""
    return [n.op.title for body in bodies(graph) for n in body.nodes if n.operands and n.op.title != "reshape"]


def plain(w: Any, u: Any, c: Any, xs: Any) -> Any:
    return rlx.scan(lambda c, x: (rlx.tanh(c @ w + x @ u), None), c, xs)[0]


def rows(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """Several rows a step, and a y that is the product itself; in reverse."""

    def step(c: Any, x: Any) -> Any:
        return c + rlx.sum(x @ u, axis=0), x @ u

    return rlx.scan(step, c, rlx.reshape(rlx.concat([xs, xs, xs]), (5, 3, 4)), reverse=True)


def same(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """A chain on constants alone, of which a step reads the end, a view of it, and returns the middle."""

    def step(c: Any, x: Any) -> Any:
        middle = rlx.exp(u)
        end = middle / (1.0 + middle)
        return c @ end + rlx.matrix_transpose(end) @ x, middle

    return rlx.scan(step, c, xs)


def nested(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """From the inner loop into the outer one, and from there outside."""

    def outer(c: Any, x: Any) -> Any:
        return rlx.scan(lambda c, y: (rlx.tanh(c * y @ w + y @ rlx.exp(u)), None), c, xs)[0] + x, None

    return rlx.scan(outer, c, xs)[0]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (plain, ["matmul", "add", "tanh"]),
        (rows, ["sum", "add"]),
        (same, ["matmul", "transpose", "matmul", "add"]),
        (nested, ["scan", "add", "mul", "matmul", "add", "tanh"]),
    ],
)
def test_what_a_step_need_not_compute_is_computed_before(function: Any, left: list[str]) -> None:
    graph = rlx.trace(function, W, U, C, XS)
    result = HoistFromLoops().run(graph, Context())
    assert ops(result.graph) == left
    names = dict(zip(graph.input_types, (W, U, C, XS), strict=True))
    for before, after in zip(rlx.interpret(graph, names), rlx.interpret(result.graph, names), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-12)
    again = HoistFromLoops().run(result.graph, Context())
    assert again.graph is result.graph


def stays(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """A view, something far larger than what it is made of, and a constant that nothing is multiplied by."""
    table = np.arange(64.0).reshape(16, 4)
    return rlx.scan(lambda c, x: (c + rlx.sum(rlx.broadcast_to(w[0], (90, 4)) * x) + table[3], None), c, xs)[0]


def never(w: Any, u: Any, c: Any, xs: Any) -> Any:
    """No step is done, or nobody knows."""
    done = rlx.scan(lambda c, x: (c + x @ u, rlx.exp(w)), c, np.zeros((0, 4)))[0]
    return rlx.while_loop(lambda c: rlx.sum(c) < 9.0, lambda c: c + rlx.exp(w)[0], done)


@pytest.mark.parametrize("function", [stays, never])
def test_what_is_no_gain_or_may_not_be_wanted_stays(function: Any) -> None:
    graph = rlx.trace(function, W, U, C, XS)
    assert HoistFromLoops().run(graph, Context()).graph is graph


def test_weights_that_are_constants_of_a_body_are_its_operands_and_are_packed() -> None:
    big = (RNG.normal(size=(600, 600)) * 0.02).astype(np.float32)
    jitted = rlx.jit(lambda c: rlx.fori_loop(0, 3, lambda i, c: c @ big, c))
    ones = np.ones((2, 600), np.float32)
    np.testing.assert_allclose(jitted(ones), ones @ np.linalg.matrix_power(big, 3), rtol=1e-3, atol=1e-6)
    assert "is driven" not in str(jitted.executables[0].report)

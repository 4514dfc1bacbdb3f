"""A While that goes through the same states as another one is no loop of its own: forward mode runs one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph
from rlx_core.ops.control.loop import While
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context
from rlx_core.passes.fold_constants import FoldConstants
from rlx_core.passes.inline_calls import InlineCalls
from rlx_core.passes.merge_loops import MergeLoops

X = np.float64([0.3, 0.5, 0.7])


def merged(graph: Graph) -> Graph:
    """What the pass makes of a program that was cleaned up."""
    for step in (InlineCalls(), FoldConstants(), CommonSubexpressions(), DeadCode(), MergeLoops(), DeadCode()):
        graph = step.run(graph, Context()).graph
    return graph


def loops(graph: Graph) -> int:
    return sum(isinstance(node.op, While) for node in graph.nodes)


def root(x: Any) -> Any:
    """Newton's steps for the square root, counted; what is made of the result comes before its tangents' loop."""

    def step(state: Any) -> Any:
        y, n = state
        return 0.5 * (y + x / y), n + 1

    y, n = rlx.while_loop(lambda s: rlx.any(rlx.abs(s[0] * s[0] - x) > 1e-12), step, (x, 0))
    return rlx.sin(y) * n


def two_sums(x: Any) -> Any:
    """Carries that begin alike: which is which only the steps tell."""
    zero = rlx.zeros(3, dtype="f64")
    a, b, _ = rlx.while_loop(lambda s: s[2] < 4, lambda s: (s[0] + x * s[1], s[1] + x * x, s[2] + 1), (zero, zero, 0))
    return a + 2.0 * b


def second_of_two(x: Any) -> Any:
    """One that needs only the later of two such carries."""
    zero = rlx.zeros(3, dtype="f64")
    return rlx.while_loop(lambda s: s[2] < 4, lambda s: (s[0] + 1.0, rlx.sin(s[1]) + x, s[2] + 1), (zero, zero, 0))[1]


@pytest.mark.medium
@pytest.mark.parametrize("function", [root, two_sums, second_of_two])
def test_forward_mode_runs_one_loop(function: Any) -> None:
    graph = rlx.trace(lambda x, t: rlx.jvp(function, (x,), (t,)), X, X)
    found = merged(graph)
    assert loops(graph) == 2
    assert loops(found) == 1
    value, tangent = rlx.jit(lambda x, t: rlx.jvp(function, (x,), (t,)))(X, np.ones(3))
    h = 1e-6
    high, low = (np.asarray(rlx.jit(function)(X + d)) for d in (h, -h))
    np.testing.assert_array_equal(value, rlx.jit(function)(X))
    np.testing.assert_allclose(tangent, (high - low) / (2 * h), rtol=1e-7)


def test_forward_of_forward_runs_fewer_loops() -> None:
    def slope(x: Any) -> Any:
        return rlx.jvp(root, (x,), (rlx.ones(3, dtype="f64"),))

    graph = rlx.trace(lambda x, t: rlx.jvp(slope, (x,), (t,)), X, X)
    assert loops(merged(graph)) < loops(graph)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: rlx.while_loop(lambda s: rlx.sum(s) < 8.0, lambda s: s + x, x),  # another end
        lambda x, y: rlx.while_loop(lambda s: rlx.sum(s) < 9.0, lambda s: s + x * x, x),  # another step
        lambda x, y: rlx.while_loop(lambda s: rlx.sum(s) < 9.0, lambda s: s + x, 2.0 * x),  # another beginning
        lambda x, y: rlx.while_loop(lambda s: rlx.sum(s) < 9.0, lambda s: s + x, x, max_steps=3),  # another bound
        lambda x, y: rlx.while_loop(lambda s: rlx.sum(s[0]) < 9.0, lambda s: (s[0] + x, s[1] * y), (x, y)),  # after it
    ],
)
def test_loops_that_differ_stay_two(other: Any) -> None:
    def both(x: Any) -> Any:
        first = rlx.while_loop(lambda s: rlx.sum(s) < 9.0, lambda s: s + x, x)
        return first, other(x, first)

    graph = rlx.trace(both, X)
    assert loops(merged(graph)) == 2

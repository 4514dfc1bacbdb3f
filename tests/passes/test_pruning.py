"""Loops and choices lose what nobody reads: results, carries that only feed themselves, constants and elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph, Node
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context
from rlx_core.trees.flatten import flatten

XS = np.arange(6.0).reshape(3, 2) + 1
W = np.array([0.5, 2.0])


def of(graph: Graph, name: str) -> Node:
    (node,) = (n for n in graph.nodes if n.op.name == name)
    return node


def pruned(function: Any, *args: Any) -> Graph:
    """The graph after dead code went, which computes the same and stays as it is the second time."""
    graph = rlx.trace(function, *args)
    after = DeadCode().run(graph, Context()).graph
    fed = dict(zip(graph.input_types, args, strict=True))
    for a, b in zip(rlx.interpret(graph, fed), rlx.interpret(after, fed), strict=True):
        np.testing.assert_array_equal(a, b)
    assert DeadCode().run(after, Context()).graph is after
    return after


def test_a_carry_that_only_feeds_itself_goes_with_what_it_reads() -> None:
    def step(c: Any, x: Any) -> Any:
        return {"used": c["used"] + x[0], "idle": c["idle"] * W}, (x[1], c["idle"])

    after = of(pruned(lambda w, xs: rlx.scan(step, {"used": w * 0, "idle": w}, (xs, xs))[0]["used"], W, XS), "rlx.scan")
    assert (after.op.carries, after.op.consts, len(after.operands), len(after.results)) == (1, 0, 2, 1)


def test_a_carry_that_another_reads_stays() -> None:
    def step(c: Any, x: Any) -> Any:
        return (c[1], c[0] + x), None

    after = of(pruned(lambda w, xs: rlx.scan(step, (w, w * 2), xs)[0][0], W, XS), "rlx.scan")
    assert after.op.carries == 2


def test_a_gradient_keeps_what_it_is_asked_for_alone() -> None:
    """No cotangents of the data, and of constants only those of `w`; linear steps keep no trajectory."""

    def loss(w: Any, xs: Any) -> Any:
        return rlx.sum(rlx.scan(lambda c, x: (c + x * w, None), w, xs)[0])

    loops = [n for n in pruned(rlx.grad(loss), W, XS).nodes if n.op.name == "rlx.scan"]
    assert [(n.op.carries, len(n.results)) for n in loops] == [
        (2, 2)
    ]  # the way back alone: the loss itself is not returned


def test_a_while_keeps_what_its_condition_reads() -> None:
    def loop(w: Any) -> Any:
        state = rlx.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * W, s[1] + 1, s[2] + s[0]), (w, 0, w))
        return state[0]

    after = of(pruned(loop, W), "rlx.while")
    assert (after.op.carries, len(after.results)) == (2, 2)


def test_a_choice_computes_what_is_read() -> None:
    def choice(w: Any, xs: Any) -> Any:
        return rlx.cond(w[0] > 0, lambda w, xs: (w, rlx.sum(xs)), lambda w, xs: (w * 2, xs[0, 0]), w, xs)[0]

    after = of(pruned(choice, W, XS), "rlx.if")
    assert (len(after.operands), len(after.results)) == (2, 1)


def _dead_roll_of_a_constant(xs: Any, y: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        rlx.roll(y, 2)
        return c + rlx.sum(x), x

    return rlx.scan(step, np.float32(0), xs)


def _dead_roll_of_a_carry(xs: Any, y: Any) -> Any:
    return rlx.scan(lambda c, x: ((c[0] + 1, rlx.roll(c[1], 2)), None), (np.float32(0), y), xs)[0][0]


def _dead_roll_of_new_zeros(xs: Any, y: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        rlx.roll(rlx.zeros(y.shape) + c, 2)
        return c + rlx.sum(x), x

    return rlx.scan(step, np.float32(0), xs)


@pytest.mark.medium
@pytest.mark.parametrize("loop", [_dead_roll_of_a_constant, _dead_roll_of_a_carry, _dead_roll_of_new_zeros])
def test_a_guard_leaves_a_body_with_the_node_that_needs_it(loop: Any) -> None:
    batched = rlx.compile(rlx.vmap(loop), rlx.spec("f32[b, 3, 2]"), rlx.spec("f32[b, n]"))
    xs, y = np.ones((4, 3, 2), np.float32), np.ones((4, 5), np.float32)
    for a, b in zip(flatten(batched(xs, y))[0], flatten(rlx.vmap(loop)(xs, y))[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("used", [0, 1])
def test_either_result_of_a_loop_may_be_the_one_that_is_left(used: int) -> None:
    after = of(pruned(lambda w, xs: rlx.scan(lambda c, x: (c * x, c + x), w, xs)[used], W, XS), "rlx.scan")
    assert len(after.results) == (1 if used == 0 else 2)  # a y that reads the carry keeps it

"""Choices and loops that are decided become nodes in place, those inside bodies too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.passes.engine.base import Context
from rlx_core.passes.inline_calls import InlineCalls

X = np.arange(1.0, 4.0)


def decided(x: Any) -> Any:
    return rlx.cond(np.bool_(True), lambda x: x * 2.0, lambda x: x, x), rlx.cond(
        np.bool_(False), rlx.sin, lambda x: x, x
    )


def one_step(x: Any) -> Any:
    return rlx.scan(lambda c, y: (c + y * x, (c, y)), x, rlx.reshape(x, (1, 3)))


def no_step(x: Any) -> Any:
    return rlx.scan(lambda c, y: (c + y, c * y), x, np.zeros((0, 3)))


def inside(x: Any) -> Any:
    return rlx.scan(lambda c, y: (one_step(c)[0], rlx.cond(np.bool_(True), rlx.exp, rlx.sin, y)), x, x)


@pytest.mark.parametrize("function", [decided, one_step, no_step, inside])
def test_what_is_decided_goes_and_values_stay(function: Any) -> None:
    graph = rlx.trace(function, X)
    result = InlineCalls().run(graph, Context())
    left = [n.op.name for n in result.graph.nodes if n.op.name in ("rlx.if", "rlx.scan")]
    assert left == (["rlx.scan"] if function is inside else [])
    if function is inside:
        (loop,) = (n.op for n in result.graph.nodes if n.op.name == "rlx.scan")
        assert {n.op.name for n in loop.body.nodes} & {"rlx.if", "rlx.scan"} == set()
    for before, after in zip(rlx.interpret(graph, {"x": X}), rlx.interpret(result.graph, {"x": X}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_choice_of_values_stays() -> None:
    graph = rlx.trace(lambda x: rlx.cond(x[0] > 0, rlx.sin, rlx.cos, x), X)
    assert InlineCalls().run(graph, Context()).graph is graph

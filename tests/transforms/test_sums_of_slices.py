"""The way back through slices: side by side where they do not overlap, sums of padded values where they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.movement import narrow
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context
from rlx_core.transforms.vjp import vjp_graph


def part(x: Any, start: int, length: int, axis: int = 0, step: int = 1) -> Any:
    return narrow(x, axis=axis, start=start, length=length, step=step)


def back_ops(graph_of: Any, function: Callable[..., Any], **types: str) -> tuple[Any, list[str]]:
    made = vjp_graph(graph_of(function, **types), list(types))
    live = DeadCode().run(made, Context()).graph
    return made, [n.op.name.removeprefix("rlx.") for n in live.nodes if n.op.name in ("rlx.pad", "rlx.concat")]


ROWS = [
    pytest.param(lambda x: (exp(part(x, 0, 2)), tanh(part(x, 2, 4))), ["concat"], id="parts that tile the whole"),
    pytest.param(lambda x: (exp(part(x, 3, 3)), tanh(part(x, 0, 3))), ["concat"], id="in the other order"),
    pytest.param(lambda x: (exp(part(x, 0, 2)), tanh(part(x, 3, 2))), ["concat"], id="gaps between and behind"),
    pytest.param(lambda x: exp(part(x, 1, 3)), ["pad"], id="one part"),
    pytest.param(lambda x: (exp(part(x, 0, 4)), tanh(part(x, 3, 3))), ["pad", "pad"], id="parts that overlap"),
    pytest.param(lambda x: (exp(part(x, 0, 3, step=2)), tanh(part(x, 1, 3, step=2))), ["pad", "pad"], id="a step"),
    pytest.param(
        lambda x: (exp(part(x, 0, 3)), tanh(part(x, 3, 3)), part(x, 0, 3)), ["concat", "pad"], id="one part twice"
    ),
    pytest.param(lambda x: (exp(part(x, 0, 3)), tanh(part(x, 3, 3)), x * x), ["concat"], id="read whole as well"),
]


@pytest.mark.parametrize(("function", "expected"), ROWS)
def test_slices_that_do_not_overlap_are_concatenated_on_the_way_back(
    graph_of: Any, run: Any, function: Callable[..., Any], expected: list[str]
) -> None:
    made, found = back_ops(graph_of, function, x="f64[6]")
    assert sorted(found) == sorted(expected)
    x = np.linspace(-1.0, 1.0, 6)
    outputs = len(graph_of(function, x="f64[6]").outputs)
    cotangents = [np.arange(1.0, 1.0 + t.shape[0]) for n, t in made.input_types.items() if n != "x"]
    step = 1e-6
    slope = np.zeros(6)
    forward = graph_of(function, x="f64[6]")
    for i in range(6):
        moved = [run(forward, x + sign * step * np.eye(6)[i]) for sign in (1, -1)]
        ups, downs = moved
        slope[i] = sum(c @ (u - d) for c, u, d in zip(cotangents, ups, downs, strict=True)) / (2 * step)
    # A central difference: h²/6 of third derivatives below 3, times cotangents up to 6, and 1e-16 / h of cancellation.
    np.testing.assert_allclose(run(made, x, *cotangents)[outputs], slope, rtol=0, atol=1e-8)


def test_parts_along_different_axes_are_added(graph_of: Any) -> None:
    _, found = back_ops(graph_of, lambda x: (exp(part(x, 0, 2)), tanh(part(x, 0, 2, axis=1))), x="f64[4, 4]")
    assert found == ["pad", "pad"]


def test_the_second_derivative_of_a_split_is_right(graph_of: Any, run: Any) -> None:
    forward = graph_of(lambda x: exp(part(x, 0, 2)) * part(x, 2, 2), x="f64[4]")
    first = vjp_graph(forward, ["x"], seed="input")
    second = vjp_graph(first, ["x"], outputs=[1])
    x, g, h = np.array([0.1, -0.2, 0.3, 0.4]), np.array([1.0, 2.0]), np.array([0.5, -1.0, 2.0, 1.5])
    # y = eᵃ·b; <h, ∇> = g·(h₁·eᵃ·b + h₂·eᵃ), whose derivatives by a and b follow.
    a, b = x[:2], x[2:]
    expected = [*(g * np.exp(a) * (h[:2] * b + h[2:])), *(g * np.exp(a) * h[:2])]
    found = run(second, **dict(zip(second.input_types, (x, g, h), strict=True)))[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-13)  # ten operations of float64

"""What a Scan keeps for its derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ops.activation import tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.call import traced
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.control.scan_derivatives import kept, with_trajectories

BODY = traced("cell", lambda c, n, x: (tanh(add(c, x)), add(n, 1), n, multiply(c, x)), "f32[3] i64[] f32[3]")
OP = Scan(BODY, 2, 0, 4)


def test_a_y_that_is_the_carry_as_it_was_is_its_trajectory() -> None:
    assert kept(OP) == {1: 0}


def test_missing_trajectories_come_after_the_results_and_only_once() -> None:
    full = with_trajectories(OP)
    assert kept(full) == {0: 2, 1: 0}
    assert full.body.outputs[:4] == BODY.outputs
    assert with_trajectories(full) is full


@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_cotangents_of_weights_are_products_behind_the_loop(length: int, reverse: bool) -> None:
    """Also of one that is read twice; not of one whose rows are too many, nor of a vector."""
    rng = np.random.default_rng(5)
    w, v = rng.normal(size=(2, 6, 6)) * 0.4
    b, c, xs = rng.normal(size=6), rng.normal(size=(2, 6)), rng.normal(size=(length, 2, 6))

    def step(w: Any, v: Any, b: Any, c: Any, x: Any) -> Any:
        c = rlx.tanh(c @ w + x @ w + rlx.matrix_transpose(v @ rlx.matrix_transpose(c)) + b)
        return c, c * x

    def looped(w: Any, v: Any, b: Any) -> Any:
        c_end, ys = rlx.scan(lambda c, x: step(w, v, b, c, x), c, xs, reverse=reverse)
        return rlx.sum(c_end * c_end) + rlx.sum(ys)

    def unrolled(w: Any, v: Any, b: Any) -> Any:
        state, total = c, 0.0
        for x in xs[::-1] if reverse else xs:
            state, y = step(w, v, b, state, x)
            total = total + rlx.sum(y)
        return rlx.sum(state * state) + total

    found = rlx.grad(lambda p: looped(*p))((w, v, b))
    expected = rlx.grad(lambda p: unrolled(*p))((w, v, b)) if length else [np.zeros_like(a) for a in (w, v, b)]
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-12)
    if length > 1:
        graph = rlx.trace(rlx.grad(lambda p: looped(*p)), (w, v, b))
        back = [n.op for n in graph.nodes if isinstance(n.op, Scan)][-1]
        assert [t.static_shape for t in list(back.body.input_types.values())[: back.carries]] == [(2, 6), (6,)]

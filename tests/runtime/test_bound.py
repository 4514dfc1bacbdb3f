"""What is computed when parameters are bound: by the interpreter, or compiled where it has loops."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

import rlx_core as rlx
import rlx_core.passes.fold_constants  # before the interpreter, which it uses too, is replaced

pytest.importorskip("rlx_cpu", reason="loops are compiled for the CPU")

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def of_a_constant(x):
    return x + rlx.fori_loop(0, 1000, lambda i, c: c * 0.5 + 1, np.float32(0))


def of_a_parameter(w, x):
    total, rows = rlx.scan(lambda c, row: (c + row, rlx.sin(c)), rlx.zeros(4, dtype=rlx.f32), w)
    return x + total + rlx.sum(rows, axis=0)


def refused(*_: object, **__: object) -> NoReturn:
    raise AssertionError("the interpreter runs a loop")


@pytest.mark.medium
def test_loops_of_constants_and_parameters_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.float32([1, 2, 3, 4])
    totals = np.cumsum(np.vstack([np.zeros((1, 4), np.float32), W]), axis=0)
    monkeypatch.setattr("rlx_core.ir.interpret.interpret", refused)
    np.testing.assert_allclose(rlx.compile(of_a_constant, rlx.spec("f32[4]"))(x), x + 2, rtol=1e-6)
    compiled = rlx.compile(of_a_parameter, W, rlx.spec("f32[4]"))
    for scale in (1, 2):  # a program is prepared again when its parameters change
        compiled.rebind(w=scale * W)
        expected = x + scale * totals[-1] + np.sin(scale * totals[:-1]).sum(axis=0)
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-5)


def test_what_has_no_loop_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_core.ir.interpret.interpret", refused)
    compiled = rlx.compile(lambda w, x: x @ rlx.exp(w), W, rlx.spec("f32[2, 3]"))
    with pytest.raises(AssertionError, match="the interpreter runs"):
        compiled(np.ones((2, 3), np.float32))

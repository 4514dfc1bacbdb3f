"""Loops and choices on a device: the host goes round, and of all values only conditions cross."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.device.array import DeviceArray
from rlx_core.errors import IndexRangeError

f32 = np.float32
XS = np.arange(12, dtype=f32).reshape(4, 3) / f32(7)
C = np.array([0.5, -1, 2], f32)


def summed(c: Any, xs: Any) -> Any:
    """Carries that change places, a result a step, from the end."""
    return rlx.scan(lambda s, x: ((s[1], rlx.tanh(s[0]) + x), s[0] * x), (c, c * 2.0), xs, reverse=True)


def grown(c: Any, xs: Any) -> Any:
    return rlx.while_loop(lambda c: rlx.sum(c * c) < 50.0, lambda c: c * 1.5 + xs[0], c)


def chosen(c: Any, xs: Any) -> Any:
    return rlx.cond(c[0] > 0.0, lambda: rlx.sum(xs, axis=0), lambda: grown(c, xs))


def slope(c: Any, xs: Any) -> Any:
    return rlx.grad(lambda c: rlx.sum(summed(c, xs)[0][1]))(c)


@pytest.mark.parametrize("function", [summed, grown, chosen, slope], ids=lambda f: f.__name__)
def test_it_computes_what_the_host_would(bench: Any, function: Any) -> None:
    import optree

    for sign in (1, -1):
        graph = rlx.trace(function, C * f32(sign), XS)
        expected = rlx.interpret(graph, dict(zip(graph.input_types, (C * f32(sign), XS), strict=True)))
        jitted = bench.jit(function)
        for _ in range(2):
            for found, right in zip(optree.tree_leaves(jitted(C * f32(sign), XS)), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_arrays_on_the_device_stay_there(bench: Any) -> None:
    jitted, c, xs = bench.jit(summed), bench.put(C), bench.put(XS)
    jitted(c, xs)
    asked = bench.during(lambda: jitted(c, xs))
    assert "read" not in asked
    assert isinstance(jitted(c, xs)[1], DeviceArray)
    np.testing.assert_array_equal(c.to_host(), C)  # what is carried is a copy


def test_conditions_are_read_once_a_round(bench: Any) -> None:
    jitted, c, xs = bench.jit(grown), bench.put(C), bench.put(XS)
    jitted(c, xs)
    rounds = int(
        rlx.while_loop(lambda s: rlx.sum(s[0] * s[0]) < 50.0, lambda s: (s[0] * 1.5 + XS[0], s[1] + 1), (C, 0))[1]
    )
    assert bench.during(lambda: jitted(c, xs))["read"] == rounds + 1


def test_an_index_outside_is_told_with_its_node(bench: Any) -> None:
    jitted = bench.jit(lambda n, x: rlx.fori_loop(0, 3, lambda i, s: s + rlx.take(x, i + n), f32(0)))
    assert float(jitted(np.int32(0), C)) == 1.5
    with pytest.raises(IndexRangeError, match="index 3 is outside an axis of 3"):
        jitted(np.int32(1), C)


def test_reports_say_who_drives(bench: Any) -> None:
    jitted = bench.jit(summed)
    jitted(C, XS)
    said = str(jitted.executables[0].report)
    assert "the host drives driven[rlx.scan]" in said
    assert "steps generated" in said

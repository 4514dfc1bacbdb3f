"""Which entry a call goes to: parameters bound anew, sizes, Python scalars, trees, variants, signatures, traces."""

from __future__ import annotations

import numpy as np
import pytest
from entries import HOST, W, X, jitted, opened

import rlx_core as rlx

pytestmark = pytest.mark.usefixtures("without_poison")


def test_parameters_bound_anew_are_seen_by_the_next_call() -> None:
    fast = rlx.compile(lambda w, x: x @ w, W, rlx.spec("f32[4, 16]"), host=HOST, target="cpu")
    clone = fast.executable.clone()
    for number in range(6):
        np.testing.assert_allclose(fast(X), X @ (W + number), rtol=1e-4, atol=1e-4)  # 16 products in f32
        np.testing.assert_array_equal(clone.run({"x": X})[0], fast(X))
        assert fast.executable.entry_cell.entry is not None
        fast.rebind(w=W + np.float32(number + 1))
        assert clone.entry_cell.entry is None


def test_a_template_serves_every_size_with_one_frame_each() -> None:
    fast = rlx.compile(lambda x: rlx.exp(x) * 2.0, rlx.spec("f32[n, 16]"), host=HOST, target="cpu")
    for n in (1, 2, 1, 1, 1, 2, 2, 3, 0, 0, 0, 1):
        x = np.ones((n, 16), "f4")
        assert fast(x).shape == (n, 16)
        assert fast.report.lir.graph.input_types["x"].static_shape == (n, 16)


def test_python_scalars_are_compared_before_a_call_goes_straight() -> None:
    scale = jitted(lambda x, factor: x * factor)
    for factor in (2, 2, 2, 2.0, 2.0, 3, 2, True, 0.0, -0.0, 2):
        result = scale(np.float32([1, -1]), factor)
        np.testing.assert_array_equal(result, np.float32([1, -1]) * factor)
        assert np.signbit(result[0]) == np.signbit(np.float32(factor))


def test_numpy_scalars_go_straight_wherever_they_are() -> None:
    for fast, args in (
        (jitted(lambda x, scale: x * scale), (X, np.float32(3))),
        (
            jitted(lambda x, scales: x * scales["a"] + scales["b"]),
            (X, {"a": np.float32(3), "b": np.asarray(np.float32(0))}),
        ),
    ):
        opened(fast, *args)
        checked: list[int] = []
        fast._checked = lambda *_, checked=checked: checked.append(1)
        np.testing.assert_array_equal(fast(*args), X * 3)
        assert not checked
        fast(X, *[args[1]] * 2)
        fast(X)
        fast(X, np.float64(3))
        assert len(checked) == 3


def test_trees_go_straight_and_other_structures_do_not() -> None:
    fast = jitted(lambda params, x: {"y": x @ params["w"] + params["b"]})
    params = {"w": W, "b": W[0].copy()}
    opened(fast, params, X)
    seen: list[int] = []
    fast._checked = lambda *_: seen.append(1)
    np.testing.assert_allclose(fast(params, X)["y"], X @ W + W[0], rtol=1e-4, atol=1e-4)  # 16 products in f32
    assert not seen
    fast({"w": W}, X)
    assert seen


def test_several_variants_go_straight_side_by_side() -> None:
    fast = jitted(lambda x: rlx.exp(x))
    inputs = [X, X[:2], X.astype("f8")]
    expected = [np.copy(fast(x)) for x in inputs]
    for x in inputs:
        fast(x)
    seen: list[int] = []
    fast._checked = lambda *_: seen.append(1)
    for x, wanted in zip(inputs * 3, expected * 3, strict=True):
        np.testing.assert_array_equal(fast(x), wanted)
    assert not seen


def test_parameters_of_a_signature_are_not_mixed_up() -> None:
    fast = jitted(lambda a, b=None, c=None: a - b if c is None else a * c)
    x, y = np.float32([3]), np.float32([2])
    for _ in range(4):
        assert fast(x, y) == 1
        assert fast(x, c=y) == 6
    keyword_only = jitted(lambda a, *, b: a - b)
    for _ in range(4):
        assert keyword_only(x, b=y) == 1
        with pytest.raises(TypeError):
            keyword_only(x, y)


def test_a_call_inside_a_trace_is_traced() -> None:
    inner = opened(jitted(lambda x: rlx.exp(x)), X)
    outer = rlx.trace(lambda x: inner(x) + inner(X), X)
    assert [node.op.name for node in outer.nodes].count("rlx.exp") == 2
    both = jitted(lambda x: inner(x) + inner(X))(X)  # one of them is folded, by NumPy's exponential
    np.testing.assert_allclose(both, 2 * inner(X), rtol=4e-7)  # 2 ulp of f32 on either side

"""Python functions inside of programs: when they are called, in which order, and what becomes of their errors."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import CallbackError, FormatError, MissingRuleError, TraceError

X = np.float32([3, 1, 2])


@pytest.fixture
def seen():
    return []


def test_a_pure_callback_gives_its_value_in_the_middle_of_a_program():
    f = rlx.jit(lambda x: rlx.pure_callback(np.sort, rlx.spec("f32[3]"), 2 * x) + 1)
    np.testing.assert_array_equal(f(X), [3, 5, 7])
    assert sum("pure_callback" in op for op, _, _ in f.report.kernels) == 1
    np.testing.assert_array_equal(rlx.pure_callback(np.sort, rlx.spec("f32[3]"), X), [1, 2, 3])  # outside of a program


def test_pytrees_and_python_scalars_go_through():
    def host(tree, n):
        assert n == 2
        return {"a": tree["x"] * n, "b": np.int64(tree["x"].size)}

    f = rlx.jit(lambda x: rlx.pure_callback(host, {"a": "f32[3]", "b": "i64[]"}, {"x": x}, 2))
    found = f(X)
    np.testing.assert_array_equal(found["a"], 2 * X)
    assert int(found["b"]) == 3


def test_halves_come_as_halves(seen):
    f = rlx.jit(lambda x: rlx.pure_callback(lambda a: seen.append(a.dtype) or a, rlx.spec("f16[3]"), x))
    np.testing.assert_array_equal(f(X.astype(np.float16)), X)
    assert seen == [np.float16]


def test_effects_stay_in_their_order_and_happen_in_every_run(seen):
    def f(x):
        for word in "abc":
            rlx.debug.callback(lambda a, word=word: seen.append((word, float(a[0]))), x)
            x = x + 1
        return x

    compiled = rlx.jit(f)
    compiled(X)
    compiled(X)
    assert seen == [("a", 3.0), ("b", 4.0), ("c", 5.0)] * 2


def test_under_vmap_and_grad(seen):
    def f(x):
        rlx.debug.callback(lambda a: seen.append(float(a)), x)
        return x * rlx.pure_callback(lambda a: np.float32(10 * a), rlx.spec("f32[]"), rlx.stop_gradient(x))

    np.testing.assert_array_equal(rlx.vmap(f)(X), 10 * X * X)
    assert seen == [3, 1, 2]
    assert float(rlx.grad(f)(X[0])) == 30
    assert seen == [3, 1, 2, 3]
    assert rlx.vmap(rlx.grad(f))(X).tolist() == [30, 10, 20]


def test_a_custom_derivative_makes_a_callback_differentiable():
    f = rlx.custom_vjp(lambda x: rlx.pure_callback(np.square, rlx.spec("f32[3]"), x))
    f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * x * g,))
    np.testing.assert_array_equal(rlx.grad(lambda x: rlx.sum(f(x)))(X), 2 * X)
    with pytest.raises(MissingRuleError, match="a Python function has no derivative") as caught:
        rlx.grad(lambda x: rlx.sum(rlx.pure_callback(np.square, rlx.spec("f32[3]"), x)))(X)
    assert "custom_vjp" in caught.value.hint


def test_an_error_is_the_cause_of_a_typed_one_and_the_program_goes_on():
    def check(x):
        if x[0] > 5:
            raise ValueError("too large")

    f = rlx.jit(lambda x: rlx.debug.callback(check, x) or 2 * x)
    with pytest.raises(CallbackError, match="callback check: it raised ValueError: too large") as caught:
        f(3 * X)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "test_callbacks.py" in str(caught.value)
    np.testing.assert_array_equal(f(X), 2 * X)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x[:2], r"result 0 must be f32\[3\], not float32\[2\]"),
        (lambda x: x.astype(np.float64), r"result 0 must be f32\[3\], not float64\[3\]"),
        (lambda x: (x, x), "it returned PyTreeSpec"),
    ],
)
def test_another_result_than_was_promised_is_an_error(function, says):
    f = rlx.jit(lambda x: rlx.pure_callback(function, rlx.spec("f32[3]"), x))
    with pytest.raises(CallbackError, match=says):
        f(X)


def test_two_functions_of_one_name_are_two():
    def make(factor):
        return rlx.jit(lambda x: rlx.pure_callback(lambda a: factor * a, rlx.spec("f32[3]"), x))

    two, three = make(np.float32(2)), make(np.float32(3))
    np.testing.assert_array_equal(two(X), 2 * X)
    np.testing.assert_array_equal(three(X), 3 * X)


def test_a_program_with_a_callback_is_not_saved():
    graph = rlx.trace(lambda x: rlx.pure_callback(np.sort, rlx.spec("f32[3]"), x), rlx.spec("f32[3]"))
    with pytest.raises(FormatError, match=r"pure_callback: a program with it is not stored.*sort"):
        rlx.to_bytes(graph)


def test_text_is_printed_with_values(capsys):
    f = rlx.jit(lambda x: rlx.debug.print("{0} and {tree[n]:.1f}", 3, tree={"n": x[0]}) or x)
    f(X)
    assert capsys.readouterr().out == "3 and 3.0\n"
    with pytest.raises(TraceError, match=r"the text has \{y\}"):
        rlx.jit(lambda x: rlx.debug.print("{y}", x=x) or x)(X)
    with pytest.raises(TraceError, match="result_spec has int"):
        rlx.jit(lambda x: rlx.pure_callback(np.sort, 3, x))(X)

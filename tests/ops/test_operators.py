"""Python's operators on values: each means the function that the Python Array API names."""

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import OPERATORS, Builder
from rlx_core.ir.types import TensorType

FLOATS, INTS = (np.array([5.5, -3.0]), np.array([2.0, 4.0])), (np.array([13, -7]), np.array([3, 2]))


@pytest.mark.parametrize(
    "function",
    [
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        operator.pow,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.eq,
        operator.ne,
    ],
)
def test_an_operator_means_what_numpy_means_by_it(function: Any, calculus: Any) -> None:
    """Between two values, with a scalar on the right, and with a scalar on the left."""
    for a, b in (FLOATS, INTS):
        np.testing.assert_array_equal(calculus.evaluate(function, a, b), function(a, b))
        np.testing.assert_array_equal(calculus.evaluate(lambda x: function(x, 2), a), function(a, 2))
        np.testing.assert_array_equal(calculus.evaluate(lambda x: function(3, x), b), function(3, b))


@pytest.mark.parametrize("function", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_bit_operators_mean_what_numpy_means_by_them(function: Any, calculus: Any) -> None:
    np.testing.assert_array_equal(calculus.evaluate(function, *INTS), function(*INTS))


@pytest.mark.parametrize("function", [operator.neg, operator.pos, operator.abs, operator.invert])
def test_unary_operators_mean_what_numpy_means_by_them(function: Any, calculus: Any) -> None:
    np.testing.assert_array_equal(calculus.evaluate(function, INTS[0]), function(INTS[0]))


def test_a_numpy_array_on_the_left_leaves_the_operation_to_the_value(calculus: Any) -> None:
    a, b = FLOATS

    np.testing.assert_array_equal(calculus.evaluate(lambda x: b - x, a), b - a)


def test_astype_to_the_same_dtype_converts_nothing_and_is_a_copy() -> None:
    """As in NumPy: assigning to the result leaves the operand alone. Later passes drop the copy."""
    builder = Builder()
    x = builder.input("x", TensorType(dtype("f32"), (2,)))

    assert x.astype("f32") is not x
    assert x.astype("f32").type == x.type
    assert x.astype(np.int64).dtype is dtype("i64")
    assert [n.op.name for n in builder.nodes].count("rlx.cast") == 1


def test_the_transpose_reverses_all_axes_and_that_of_matrices_the_last_two() -> None:
    x = Builder().input("x", TensorType(dtype("f32"), (2, 3, 4)))

    assert x.T.shape == (4, 3, 2)
    assert x.mT.shape == (2, 4, 3)
    made = rlx.asarray(np.zeros((2, 3, 4)))
    assert made.T.shape == (4, 3, 2)
    assert made.mT.shape == (2, 4, 3)


@pytest.mark.medium
def test_methods_are_numpys() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)

    def called(x: Any) -> tuple[Any, ...]:
        return (
            *(
                getattr(x, name)(axis=1)
                for name in ("sum", "prod", "mean", "std", "var", "max", "min", "argmax", "argmin")
            ),
            *(getattr(x > 0, name)(axis=-1, keepdims=True) for name in ("any", "all")),
            *(x.cumsum(axis=1), x.cumprod(axis=2), x.argsort(axis=0), x.clip(-0.5, 0.5), x.round(), x.conj(), x.real),
            *(x.flatten(), x.ravel(), x.swapaxes(0, -1), x[:1].squeeze(0), x.take([1, 0], axis=2), x.repeat(2, axis=0)),
            x[0].dot(x[1].T),
        )

    for found, expected in zip(rlx.jit(called)(x), called(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.medium
def test_a_function_is_imported_with_its_operator() -> None:
    code = (
        "import sys, numpy as np, rlx_core as rlx\n"
        "rlx.trace(lambda x: x + 1, np.ones(3, np.float32))\n"
        "print('rlx_core.ops.arithmetic' in sys.modules, 'rlx_core.ops.linalg' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "False"]


def test_every_operator_has_a_function() -> None:
    assert all(callable(OPERATORS[name]) for name in OPERATORS.places)

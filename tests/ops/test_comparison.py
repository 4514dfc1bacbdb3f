"""Comparisons, logic and classification."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import ALL, FLOATS, INTEGERS, DType, bool_
from rlx_core.ir.graph import Builder
from rlx_core.ir.types import TensorType
from rlx_core.ops import comparison as ops

NAN, INF = math.nan, math.inf

COMPARISONS = {
    ops.equal: operator.eq,
    ops.not_equal: operator.ne,
    ops.less: operator.lt,
    ops.less_equal: operator.le,
    ops.greater: operator.gt,
    ops.greater_equal: operator.ge,
}


@pytest.mark.parametrize("function", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons_agree_with_python_also_on_nan(function: Any) -> None:
    pairs = list(itertools.product([-INF, -1.0, -0.0, 0.0, 2.0, INF, NAN], repeat=2))
    a, b = (np.array([p[k] for p in pairs]) for k in (0, 1))

    assert function(a, b).tolist() == [COMPARISONS[function](p, q) for p, q in pairs]


@pytest.mark.parametrize("function", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons_promote_and_give_bool(function: Any) -> None:
    """-1 as u8 is 255, and 2^53 + 1 as f32 is 2^53: both sides meet in a type that holds them."""
    signed, unsigned = np.array([-1, 5], np.int8), np.array([255, 5], np.uint8)
    exact, rounded = np.array([2**24 + 1], np.int32), np.array([2**24], np.int32)

    assert function(signed, unsigned).tolist() == [COMPARISONS[function](p, q) for p, q in ((-1, 255), (5, 5))]
    assert function(exact, rounded).tolist() == [COMPARISONS[function](2**24 + 1, 2**24)]
    assert function(signed, unsigned).dtype == np.bool_


def test_complex_has_equality_but_no_order() -> None:
    z = np.array([1 + 2j, NAN])

    assert ops.equal(z, z).tolist() == [True, False]
    assert ops.not_equal(z, z).tolist() == [False, True]
    for function in (ops.less, ops.less_equal, ops.greater, ops.greater_equal):
        with pytest.raises(DtypeError, match="not c128"):
            function(z, z)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ALL, repeat=2)), ids=str)
def test_logic_takes_any_two_dtypes(a: DType, b: DType) -> None:
    """Even u64 with i64, which have no common type: each operand is a truth value by itself."""
    builder = Builder()
    x, y = builder.input("x", TensorType(a, (2,))), builder.input("y", TensorType(b, (2,)))

    for function in (ops.logical_and, ops.logical_or, ops.logical_xor):
        assert function(x, y).dtype is bool_


def test_logic_reads_nan_as_true_and_negative_zero_as_false() -> None:
    x = np.array([NAN, -0.0, 0.5, INF])

    assert ops.logical_not(x).tolist() == [False, True, False, False]
    assert ops.logical_and(x, np.array([1, 1, 0, 2])).tolist() == [True, False, False, True]
    assert ops.logical_or(x, np.array([False])).tolist() == [True, False, True, True]
    assert ops.logical_xor(x, np.array([1j])).tolist() == [False, True, False, False]


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_classification_of_every_float(d: DType) -> None:
    x = np.array([NAN, INF, -INF, 1.0, -0.0]).astype(d.numpy)

    assert ops.isnan(x).tolist() == [True, False, False, False, False]
    assert ops.isinf(x).tolist() == [False, True, True, False, False]
    assert ops.isfinite(x).tolist() == [False, False, False, True, True]
    assert ops.signbit(x[1:]).tolist() == [False, True, False, True]


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integers_are_finite_and_have_a_sign(d: DType) -> None:
    x = np.array([np.iinfo(d.numpy).min, 0, np.iinfo(d.numpy).max], d.numpy)

    assert ops.isfinite(x).all()
    assert not ops.isnan(x).any()
    assert ops.signbit(x).tolist() == [d.kind == "int", False, False]


def test_a_comparison_has_declared_zero_derivatives(calculus: Any) -> None:
    """Not a missing rule: a mask computed from x lets the rest of the program differentiate."""
    assert calculus.slopes(lambda x: x * (x > 1.0), [0.5, 2.0]).tolist() == [0, 1]

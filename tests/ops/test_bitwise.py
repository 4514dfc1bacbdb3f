"""Bits and shifts against Python's integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import INTEGERS, DType
from rlx_core.ops import bitwise as ops


def points(d: DType) -> list[int]:
    limits = np.iinfo(d.numpy)
    return sorted({limits.min, limits.max, 0, 1, 6, limits.max // 3, -1 if d.kind == "int" else 5})


def wrapped(value: int, d: DType) -> int:
    low = int(np.iinfo(d.numpy).min)
    return (value - low) % 2 ** (8 * d.itemsize) + low


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_bits_agree_with_python(d: DType) -> None:
    pairs = list(itertools.product(points(d), repeat=2))
    a, b = (np.array([p[k] for p in pairs], d.numpy) for k in (0, 1))

    assert ops.bitwise_and(a, b).tolist() == [p & q for p, q in pairs]
    assert ops.bitwise_or(a, b).tolist() == [p | q for p, q in pairs]
    assert ops.bitwise_xor(a, b).tolist() == [p ^ q for p, q in pairs]
    assert ops.bitwise_invert(a).tolist() == [wrapped(~p, d) for p, _ in pairs]


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_shifts_agree_with_python_beyond_the_width_too(d: DType) -> None:
    """C leaves a count of the width or more undefined; processors take it modulo the width."""
    bits = 8 * d.itemsize
    pairs = list(itertools.product(points(d), (0, 1, bits - 1, bits, bits + 1, 100)))
    a, b = (np.array([p[k] for p in pairs], d.numpy) for k in (0, 1))

    assert ops.bitwise_left_shift(a, b).tolist() == [wrapped(p << q, d) for p, q in pairs]
    assert ops.bitwise_right_shift(a, b).tolist() == [p >> q for p, q in pairs]
    assert ops.bitwise_right_shift(a, b).dtype == d.numpy


def test_a_negative_count_is_beyond_the_width() -> None:
    a, b = np.array([5, -5], np.int32), np.array([-1, -1], np.int32)

    assert ops.bitwise_left_shift(a, b).tolist() == [0, 0]
    assert ops.bitwise_right_shift(a, b).tolist() == [0, -1]


def test_masks_combine(calculus: Any) -> None:
    x = np.array([-1.0, 1.0, 3.0])

    assert calculus.evaluate(lambda v: (v > 0) & (v < 2), x).tolist() == [False, True, False]
    assert calculus.evaluate(lambda v: ~((v < 0) | (v > 2)), x).tolist() == [False, True, False]
    assert calculus.evaluate(lambda v: (v > 0) ^ (v > 2), x).tolist() == [False, True, False]


def test_floats_have_no_bits_and_bools_do_not_shift() -> None:
    with pytest.raises(DtypeError, match="not f64"):
        ops.bitwise_and(np.array([1.0]), np.array([1.0]))
    with pytest.raises(DtypeError, match="not bool"):
        ops.bitwise_left_shift(np.array([True]), np.array([True]))


def test_operators_of_values_are_these_functions(calculus: Any) -> None:
    a, b = np.array([12, 7]), np.array([1, 2])

    assert calculus.evaluate(lambda p, q: (p << q) >> 1, a, b).tolist() == [12, 14]
    assert calculus.evaluate(lambda p, q: 5 & p, a, b).tolist() == [4, 5]

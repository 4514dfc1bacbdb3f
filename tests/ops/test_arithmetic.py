"""Arithmetic: promotion, exact integers, NaN and ties, the powers' special points."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError, PromotionError
from rlx_core.ir.dtypes import ALL, FLOATS, INTEGERS, DType, bool_, dtype, f32, promote
from rlx_core.ir.graph import Builder
from rlx_core.ir.op import ZERO
from rlx_core.ir.types import TensorType
from rlx_core.ops import arithmetic as ops

REAL = (*INTEGERS, *FLOATS)
NAN, INF = math.nan, math.inf


def result_dtype(function: Any, *dtypes: DType) -> DType:
    builder = Builder()
    return function(*[builder.input(f"x{i}", TensorType(d, (2,))) for i, d in enumerate(dtypes)]).dtype


# ------------------------------------------------------------------------------------------ promotion


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(ALL, 2)), ids=str)
def test_operands_are_promoted_the_same_way_both_ways(a: DType, b: DType) -> None:
    try:
        common = promote(a, b)
    except PromotionError:
        for pair in ((a, b), (b, a)):
            with pytest.raises(PromotionError):
                result_dtype(ops.add, *pair)
        return
    if common is bool_:
        with pytest.raises(DtypeError, match="takes"):
            result_dtype(ops.add, a, b)
        return
    assert result_dtype(ops.add, a, b) is common
    assert result_dtype(ops.add, b, a) is common


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_a_quotient_of_integers_is_a_float(d: DType) -> None:
    assert result_dtype(ops.divide, d, d) is promote(d, f32)


def test_a_quotient_of_large_integers_does_not_pass_through_f32() -> None:
    found = ops.divide(np.array([2**53 - 1], np.int64), np.array([1], np.int64))

    assert found.tolist() == [2.0**53 - 1]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "i8", "i64"])
def test_a_python_scalar_does_not_widen(name: str) -> None:
    builder = Builder()
    x = builder.input("x", TensorType(dtype(name), (2,)))

    for y in (x + 1, 1 + x, x - 1, 2 * x, x**2, x // 2, x % 2, -x, abs(x)):
        assert y.dtype is x.dtype


def test_complex_takes_no_order() -> None:
    for function in (ops.maximum, ops.minimum, ops.floor_divide, ops.remainder):
        with pytest.raises(DtypeError, match="not c64"):
            result_dtype(function, dtype("c64"), dtype("c64"))


# ------------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integer_arithmetic_is_exact_modulo_its_width(d: DType) -> None:
    limits = np.iinfo(d.numpy)
    points = sorted({limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, limits.max // 3})
    pairs = list(itertools.product(points, points))
    a, b = (np.array([p[k] for p in pairs], d.numpy) for k in (0, 1))

    def wrapped(value: int) -> int:
        return (value - limits.min) % 2 ** (8 * d.itemsize) + limits.min

    for function, exact in (
        (ops.add, lambda p, q: p + q),
        (ops.subtract, lambda p, q: p - q),
        (ops.multiply, lambda p, q: p * q),
        (ops.floor_divide, lambda p, q: p // q if q else 0),
        (ops.remainder, lambda p, q: p % q if q else 0),
    ):
        assert function(a, b).tolist() == [wrapped(exact(p, q)) for p, q in pairs], function
    assert ops.negative(a).tolist() == [wrapped(-p) for p, _ in pairs]
    assert ops.abs(a).tolist() == [wrapped(abs(p)) for p, _ in pairs]
    assert ops.square(a).tolist() == [wrapped(p * p) for p, _ in pairs]


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_an_integer_power_is_exact_and_truncates_negative_exponents(d: DType) -> None:
    bases = [b for b in (-3, -2, -1, 0, 1, 2, 3, 7) if b >= 0 or d.kind == "int"]
    exponents = [e for e in (-3, -2, -1, 0, 1, 2, 5, 31, 63, 100) if e >= 0 or d.kind == "int"]
    pairs = list(itertools.product(bases, exponents))
    limits = np.iinfo(d.numpy)

    def exact(base: int, exponent: int) -> int:
        if exponent < 0:
            return {1: 1, -1: (-1) ** exponent}.get(base, 0)
        return (base**exponent - limits.min) % 2 ** (8 * d.itemsize) + limits.min

    a, b = (np.array([p[k] for p in pairs], d.numpy) for k in (0, 1))
    assert ops.pow(a, b).tolist() == [int(exact(*p)) for p in pairs]


# --------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("function", [ops.maximum, ops.minimum])
def test_extremes_propagate_nan(function: Any, d: DType) -> None:
    a, b = np.array([NAN, 1, NAN], d.numpy), np.array([1, NAN, NAN], d.numpy)

    assert np.isnan(function(a, b).astype(np.float64)).all()


def test_float_remainder_has_the_sign_of_the_divisor() -> None:
    a, b = np.array([5.5, -5.5, 5.5, -5.5]), np.array([2.0, 2.0, -2.0, -2.0])

    assert ops.remainder(a, b).tolist() == [p % q for p, q in zip(a, b, strict=True)]
    assert ops.floor_divide(a, b).tolist() == [p // q for p, q in zip(a, b, strict=True)]


def test_f16_arithmetic_rounds_once() -> None:
    """The sum is exact in f32; adding in steps of f16 would give 2048."""
    assert ops.add(np.float16([2048.0]), np.float16([1.5])).tolist() == [float(np.float16(2049.5))]


# ----------------------------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("function", [ops.maximum, ops.minimum])
def test_a_tie_splits_the_derivative(function: Any, calculus: Any) -> None:
    assert calculus.slopes(function, [1.0, 0.0], np.array([1.0, 0.0])).tolist() == [0.5, 0.5]
    a, b = np.array([1.0, 2.0]), np.array([2.0, 1.0])
    total = calculus.evaluate(calculus.gradient(function), a, b) + calculus.evaluate(
        calculus.gradient(function, 1), a, b
    )
    assert total.tolist() == [1.0, 1.0]


def test_a_value_against_itself_keeps_its_whole_derivative(calculus: Any) -> None:
    assert calculus.slopes(lambda x: ops.maximum(x, x), [3.0]).tolist() == [1.0]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_powers_with_a_constant_exponent_are_smooth_at_0_and_below(exponent: float, calculus: Any) -> None:
    """Three orders at base 0 and at negative bases: b·a^(b-1) meets 0·a^-1 on the way."""

    def power(x: Any) -> Any:
        return ops.pow(x, exponent)

    points = np.array([0.0, -1.5, 2.0])
    first, coefficient = power, 1.0
    for order in range(1, 4):
        first = calculus.gradient(first)
        coefficient *= exponent - order + 1
        remaining = exponent - order
        wanted = coefficient * points**remaining if remaining >= 0 else np.zeros(3)
        np.testing.assert_allclose(calculus.evaluate(first, points), wanted, rtol=1e-14)  # a few products in f64


def test_the_derivative_in_the_exponent_is_0_where_the_base_is_not_positive(calculus: Any) -> None:
    base, exponent = np.array([0.0, -2.0, 3.0]), np.array([2.0, 2.0, 2.0])

    found = calculus.evaluate(calculus.gradient(ops.pow, 1), base, exponent)

    np.testing.assert_allclose(found, [0, 0, 9 * math.log(3)], rtol=1e-15)
    mixed = calculus.evaluate(calculus.gradient(calculus.gradient(ops.pow, 1), 0), base, exponent)
    np.testing.assert_allclose(mixed, [0, 0, 3 + 6 * math.log(3)], rtol=1e-14)  # a^(b-1)·(1 + b·ln a)


def test_complex_powers_differentiate(calculus: Any) -> None:
    z, w = np.array([1 + 2j]), np.array([0.5 - 1j])

    found = calculus.evaluate(calculus.tangent(ops.pow, 1), z, w)

    np.testing.assert_allclose(found, z**w * np.log(z), rtol=1e-13)


def test_abs_and_sign_have_derivative_0_at_0(calculus: Any) -> None:
    assert calculus.slopes(ops.abs, [0.0, -0.0, 2.0, -2.0]).tolist() == [0, 0, 1, -1]
    assert calculus.slopes(ops.sign, [0.0, 2.0]).tolist() == [0, 0]


def test_remainder_differentiates_in_both_operands(calculus: Any) -> None:
    a, b = np.array([5.5, -5.5]), np.array([2.0, 2.0])

    assert calculus.evaluate(calculus.gradient(ops.remainder, 0), a, b).tolist() == [1, 1]
    assert calculus.evaluate(calculus.gradient(ops.remainder, 1), a, b).tolist() == [-2, 3]


def test_missing_tangents_keep_the_dims_of_the_result(calculus: Any) -> None:
    row, table = np.ones(3), np.ones((2, 3))

    for function in (ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum):
        assert calculus.evaluate(calculus.tangent(function, 0), row, table).shape == (2, 3)


def test_a_quotient_differentiates_where_its_reciprocal_overflows(calculus: Any) -> None:
    """1/b is infinite in f64 and t/b is not."""
    found = calculus.evaluate(
        lambda t, a, b: calculus.jvp(ops.divide)([t, ZERO], a, b), *map(np.array, ([1e-309], [1.0], [1e-309]))
    )

    assert found.tolist() == [1.0]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "c64"])
def test_constants_of_rules_have_the_dtype_they_meet(name: str, calculus: Any) -> None:
    """Weak scalars in a rule must not widen what they meet: every gradient below has the dtype of its operand."""
    one = np.array([1.5], dtype(name).numpy)
    functions = [ops.divide, ops.pow, ops.multiply]
    functions += [] if name == "c64" else [ops.maximum, ops.hypot, ops.atan2, ops.logaddexp, ops.remainder]
    for function in functions:
        for argument in (0, 1):
            assert calculus.evaluate(calculus.gradient(function, argument), one, one).dtype == one.dtype


# ------------------------------------------------------------------------------------- two-variable functions


def test_hypot_atan2_and_logaddexp_are_right_at_the_ends() -> None:
    inf, nan = np.array(INF), np.array(NAN)

    assert ops.hypot(inf, nan) == INF
    assert ops.hypot(np.array(1e300), np.array(1e300)) == pytest.approx(math.sqrt(2) * 1e300)
    assert ops.atan2(np.array(-0.0), np.array(-1.0)) == -math.pi
    assert ops.atan2(inf, -inf) == pytest.approx(0.75 * math.pi)
    assert ops.logaddexp(-inf, -inf) == -INF
    assert ops.logaddexp(inf, np.array(0.0)) == INF
    assert ops.logaddexp(np.array(1000.0), np.array(1000.0)) == pytest.approx(1000 + math.log(2))
    assert np.isnan(ops.logaddexp(nan, inf))


def test_the_origin_has_derivative_0(calculus: Any) -> None:
    for function in (ops.hypot, ops.atan2):
        assert calculus.slopes(function, [0.0], np.zeros(1)).tolist() == [0.0]
        second = calculus.gradient(calculus.gradient(function))
        assert np.isfinite(calculus.evaluate(second, np.zeros(1), np.zeros(1))).all()


def test_the_angle_differentiates_where_squares_overflow(calculus: Any) -> None:
    assert calculus.slopes(ops.atan2, [1e200], np.array([1e200])) == pytest.approx([0.5e-200])


def test_logaddexp_of_nothing_has_no_derivative(calculus: Any) -> None:
    assert calculus.slopes(ops.logaddexp, [-INF, 0.0], np.array([-INF, -INF])).tolist() == [0, 1]
    assert np.isfinite(
        calculus.evaluate(calculus.gradient(calculus.gradient(ops.logaddexp)), np.array([-INF]), np.array([-INF]))
    ).all()

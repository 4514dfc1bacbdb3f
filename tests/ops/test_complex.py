"""Complex parts, modulus and phase; their cotangents in terms of the parts (SPEC 3.0 contract 8)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError
from rlx_core.ops import arithmetic
from rlx_core.ops import complex as ops
from rlx_core.ops.arithmetic import hypot
from rlx_core.ops.conversion import cast, conjugate, real

Z = np.array([3 + 4j, -1 + 0.5j, 0.25 - 2j])


def test_parts_and_polar_form_agree_with_numpy() -> None:
    np.testing.assert_array_equal(ops.imag(Z), Z.imag)
    np.testing.assert_array_equal(ops.complex_norm_sq(Z), Z.real**2 + Z.imag**2)
    np.testing.assert_allclose(ops.complex_abs(Z), np.abs(Z), rtol=1e-15)
    np.testing.assert_allclose(ops.angle(Z), np.angle(Z), rtol=1e-15)
    np.testing.assert_array_equal(ops.make_complex(Z.real, Z.imag), Z)


def test_the_phase_of_every_zero_is_0() -> None:
    assert ops.angle(np.array([0j, complex(-0.0, 0.0), complex(-0.0, -0.0)])).tolist() == [0, 0, 0]


def test_the_modulus_does_not_overflow() -> None:
    assert ops.complex_abs(np.array([1e300 + 1e300j])) == pytest.approx(math.sqrt(2) * 1e300)


def test_an_infinite_imaginary_part_leaves_the_real_part_alone() -> None:
    found = ops.make_complex(np.array([1.0]), np.array([math.inf]))

    assert (found.real.tolist(), found.imag.tolist()) == ([1.0], [math.inf])


@pytest.mark.parametrize(
    ("re", "im", "wanted"),
    [("float32", "float32", "complex64"), ("float16", "float16", "complex64"), ("float32", "float64", "complex128")],
)
def test_the_parts_decide_the_width(re: str, im: str, wanted: str) -> None:
    assert ops.make_complex(np.ones(2, re), np.ones(2, im)).dtype == wanted


def test_abs_of_complex_values_is_their_modulus(calculus: Any) -> None:
    assert arithmetic.abs(np.array([3 + 4j])).tolist() == [5.0]
    assert calculus.evaluate(lambda z: abs(z), Z).dtype == np.float64


def test_real_values_have_no_imaginary_part() -> None:
    for function in (ops.imag, ops.angle, ops.complex_abs, ops.complex_norm_sq):
        with pytest.raises(DtypeError, match="z must be complex"):
            function(np.ones(2))


LOSSES = {
    "norm_sq": ops.complex_norm_sq,
    "abs": ops.complex_abs,
    "angle": ops.angle,
    "real": real,
    "imag": ops.imag,
    "product": lambda z: ops.complex_norm_sq(z * (2 - 1j)),
    "quotient": lambda z: ops.complex_norm_sq((2 - 1j) / z),
    "sum": lambda z: ops.complex_norm_sq(z + 1j),
    "difference": lambda z: ops.complex_norm_sq(1j - z),
    "conjugate": lambda z: real(conjugate(z) * (1 + 2j)),
    "power": lambda z: ops.complex_abs(z**3),
    "square": lambda z: ops.imag(arithmetic.square(z)),
    "real operand": lambda z: ops.complex_norm_sq(z * cast(ops.complex_abs(z), to=z.dtype)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_twice_the_cotangent_is_the_slope_in_the_parts(loss: Any, calculus: Any) -> None:
    """∂L/∂re + i ∂L/∂im = 2 · dz, against central differences in each part."""
    step = 1e-6

    def slope(direction: complex) -> np.ndarray:
        return (calculus.evaluate(loss, Z + step * direction) - calculus.evaluate(loss, Z - step * direction)) / (
            2 * step
        )

    found = calculus.evaluate(calculus.gradient(loss), Z)

    # Central differences in f64: about 1e-10 of rounding and truncation, times slopes of up to 1e2.
    np.testing.assert_allclose(2 * found, slope(1) + 1j * slope(1j), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("loss", [ops.complex_abs, ops.angle, ops.complex_norm_sq], ids=["abs", "angle", "norm_sq"])
def test_derivatives_at_0_are_0_and_finite_twice(loss: Any, calculus: Any) -> None:
    zero = np.zeros(1, np.complex128)

    assert calculus.evaluate(calculus.gradient(loss), zero).tolist() == [0]
    twice = calculus.gradient(lambda z: real(calculus.gradient(loss)(z)))
    assert np.isfinite(calculus.evaluate(twice, zero)).all()


def test_parts_put_together_differentiate_like_the_reals(calculus: Any) -> None:
    """|re + i·im| is hypot(re, im): the factors of 2 on the way in and out cancel."""
    a, b = np.array([3.0, -1.0]), np.array([4.0, 0.5])

    for argument in (0, 1):
        found = calculus.evaluate(
            calculus.gradient(lambda p, q: ops.complex_abs(ops.make_complex(p, q)), argument), a, b
        )
        np.testing.assert_allclose(found, calculus.evaluate(calculus.gradient(hypot, argument), a, b), rtol=1e-14)

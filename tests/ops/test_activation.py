"""Functions of one variable against NumPy, SciPy and the C library: values in every dtype, ends, kinks, higher orders."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import FLOATS, DType
from rlx_core.ops import activation, gamma, piecewise, trigonometry

EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
NAN, INF = math.nan, math.inf


def softplus(x: np.ndarray, beta: float = 1.0) -> np.ndarray:
    return np.logaddexp(0, beta * x) / beta


def elu(x: np.ndarray, alpha: float = 1.0, width: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / width))


def gelu_approx(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


Reference = Callable[[np.ndarray], np.ndarray]

REFERENCES: dict[Any, tuple[Reference, float, float]] = {
    activation.exp: (np.exp, -5, 5),
    activation.exp2: (np.exp2, -5, 5),
    activation.expm1: (np.expm1, -2, 2),
    activation.log: (np.log, 0.1, 9),
    activation.log2: (np.log2, 0.1, 9),
    activation.log10: (np.log10, 0.1, 9),
    activation.log1p: (np.log1p, -0.5, 9),
    activation.sqrt: (np.sqrt, 0, 9),
    activation.rsqrt: (lambda x: x**-0.5, 0.1, 9),
    activation.cbrt: (np.cbrt, -9, 9),
    activation.tanh: (np.tanh, -5, 5),
    activation.erf: (scipy.special.erf, -3, 3),
    activation.erfc: (scipy.special.erfc, -3, 3),
    activation.erfinv: (scipy.special.erfinv, -0.9, 0.9),
    activation.sigmoid: (scipy.special.expit, -9, 9),
    activation.relu: (lambda x: np.maximum(x, 0), -3, 3),
    activation.gelu: (lambda x: x * scipy.special.ndtr(x), -3, 9),
    activation.gelu_approx: (gelu_approx, -3, 9),
    activation.silu: (lambda x: x * scipy.special.expit(x), -9, 9),
    activation.softplus: (softplus, -9, 9),
    activation.mish: (lambda x: x * np.tanh(softplus(x)), -9, 9),
    piecewise.floor: (np.floor, -3, 3),
    piecewise.ceil: (np.ceil, -3, 3),
    piecewise.trunc: (np.trunc, -3, 3),
    piecewise.round: (np.round, -3, 3),
    piecewise.leaky_relu: (lambda x: np.where(x > 0, x, 0.01 * x), -3, 3),
    piecewise.elu: (elu, -3, 3),
    piecewise.celu: (elu, -3, 3),
    piecewise.selu: (lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), -3, 3),
    piecewise.relu6: (lambda x: np.clip(x, 0, 6), -3, 9),
    piecewise.hard_tanh: (lambda x: np.clip(x, -1, 1), -3, 3),
    piecewise.hard_sigmoid: (hard_sigmoid, -5, 5),
    piecewise.hard_swish: (lambda x: x * hard_sigmoid(x), -5, 5),
    trigonometry.sin: (np.sin, -5, 5),
    trigonometry.cos: (np.cos, -5, 5),
    trigonometry.tan: (np.tan, -1, 1),
    trigonometry.sinh: (np.sinh, -5, 5),
    trigonometry.cosh: (np.cosh, -5, 5),
    trigonometry.asin: (np.arcsin, -1, 1),
    trigonometry.acos: (np.arccos, -0.9, 0.9),
    trigonometry.atan: (np.arctan, -9, 9),
    trigonometry.asinh: (np.arcsinh, -9, 9),
    trigonometry.acosh: (np.arccosh, 1.1, 9),
    trigonometry.atanh: (np.arctanh, -0.9, 0.9),
    gamma.lgamma: (scipy.special.gammaln, 0.1, 9),
    gamma.digamma: (scipy.special.digamma, 0.1, 9),
    gamma.trigamma: (lambda x: scipy.special.polygamma(1, x), 0.1, 9),
}


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("function", REFERENCES, ids=lambda f: f.__name__)
def test_values_are_right_to_the_dtype(function: Any, d: DType) -> None:
    reference, low, high = REFERENCES[function]
    x = np.linspace(low, high, 101).astype(d.numpy)

    found = function(x)

    # A formula of up to ten steps rounds after each in f16; 16 epsilon of the size of what it adds up.
    tolerance = 16 * EPSILON[d.name]
    assert found.dtype == d.numpy
    np.testing.assert_allclose(
        found.astype(np.float64), reference(x.astype(np.float64)), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("function", [f for f in REFERENCES if f is not gamma.trigamma], ids=lambda f: f.__name__)
def test_nan_stays_nan_and_f64_is_not_approximate(function: Any) -> None:
    reference, low, high = REFERENCES[function]
    x = np.linspace(low, high, 1001)

    assert np.isnan(function(np.array([NAN])))
    # 64 epsilon of f64: a 1e-7 approximation anywhere inside would miss this by seven decades.
    np.testing.assert_allclose(function(x), reference(x), rtol=1.5e-14, atol=1.5e-14)


COMPLEX = {
    activation.exp: cmath.exp,
    activation.log: cmath.log,
    activation.sqrt: cmath.sqrt,
    activation.rsqrt: lambda z: 1 / cmath.sqrt(z),
    activation.tanh: cmath.tanh,
    activation.sigmoid: lambda z: 1 / (1 + cmath.exp(-z)),
    activation.expm1: lambda z: cmath.exp(z) - 1,
    activation.log1p: lambda z: cmath.log(1 + z),
    trigonometry.sin: cmath.sin,
    trigonometry.cos: cmath.cos,
    trigonometry.tan: cmath.tan,
    trigonometry.sinh: cmath.sinh,
    trigonometry.cosh: cmath.cosh,
}


@pytest.mark.parametrize("function", COMPLEX, ids=lambda f: f.__name__)
def test_complex_functions_are_on_the_principal_branch(function: Any) -> None:
    z = np.array([1 + 2j, -1 + 0.5j, -1 - 0.5j, 0.3 - 2j])

    np.testing.assert_allclose(function(z), [COMPLEX[function](v) for v in z], rtol=1e-13)  # c128: a few roundings


@pytest.mark.parametrize("function", [activation.gelu, activation.relu, activation.erf, piecewise.floor, piecewise.elu])
def test_functions_of_the_reals_refuse_complex_and_integers(function: Any) -> None:
    for array in (np.array([1j]), np.array([1]), np.array([True])):
        with pytest.raises(DtypeError, match=r"float|takes"):
            function(array)


# -------------------------------------------------------------------------------------------- ends


def test_sigmoid_and_softplus_do_not_overflow(calculus: Any) -> None:
    x = np.float32([-1e30, -100, 0, 100, 1e30])

    wide = x.astype(np.float64)
    # f32: a few epsilon, and the spacing of its subnormals, into which e^-100 falls.
    np.testing.assert_allclose(activation.sigmoid(x), scipy.special.expit(wide), rtol=1e-6, atol=2e-45)
    np.testing.assert_allclose(activation.softplus(x), np.logaddexp(0, wide), rtol=1e-6, atol=2e-45)
    for function in (activation.sigmoid, activation.softplus, activation.silu, activation.gelu, activation.gelu_approx):
        for order in (calculus.gradient(function), calculus.gradient(calculus.gradient(function))):
            assert np.isfinite(calculus.evaluate(order, x)).all(), function


@pytest.mark.parametrize("function", [f for f in REFERENCES if REFERENCES[f][1] < -1], ids=lambda f: f.__name__)
def test_gradients_are_finite_in_f16_wherever_values_are(function: Any, calculus: Any) -> None:
    """x² is infinite in f16 from 256 on, and infinity times 0 is NaN."""
    x = np.float16([-300, -60, -7, 7, 60, 300])
    y = calculus.evaluate(function, x)
    slopes = calculus.evaluate(calculus.gradient(function), x)

    assert np.isfinite(slopes[np.isfinite(y)]).all()


def test_gelu_keeps_its_left_tail() -> None:
    """½(1 + erf(x/√2)) is 0 or a multiple of 2^-53 there."""
    x = np.array([-6.0, -8.0, -12.0])

    np.testing.assert_allclose(
        activation.gelu(x), x * scipy.special.ndtr(x), rtol=1e-13
    )  # (x²/2) epsilon: x/√2 is rounded


def test_rounding_is_half_to_even() -> None:
    assert piecewise.round(np.array([-1.5, -0.5, 0.5, 1.5, 2.5])).tolist() == [-2, 0, 0, 2, 2]


# ------------------------------------------------------------------------------------------- kinks


@pytest.mark.parametrize(
    ("function", "points", "slopes"),
    [
        (activation.relu, [0.0, -0.0, 1.0, -1.0], [0, 0, 1, 0]),
        (activation.sqrt, [0.0, 4.0], [0, 0.25]),
        (activation.rsqrt, [0.0, 4.0], [0, -1 / 16]),
        (activation.cbrt, [0.0, -8.0], [0, 1 / 12]),
        (activation.softplus, [0.0], [0.5]),
        (piecewise.round, [0.5, 1.2], [0, 0]),
        (piecewise.floor, [1.0, 1.2], [0, 0]),
        (piecewise.ceil, [1.0, 1.2], [0, 0]),
        (piecewise.trunc, [1.0, 1.2], [0, 0]),
        (lambda x: piecewise.round(x, ste=True), [0.5, 1.2], [1, 1]),
        (lambda x: piecewise.leaky_relu(x, slope=0.25), [0.0, 1.0, -1.0], [0.25, 1, 0.25]),
        (lambda x: piecewise.elu(x, alpha=2.0), [0.0, 1.0, 800.0], [2, 1, 1]),
        (lambda x: piecewise.celu(x, alpha=2.0), [0.0, 1.0, 4000.0], [1, 1, 1]),
        (piecewise.selu, [0.0, 1.0], [1.7580993408473766, 1.0507009873554805]),
        (piecewise.relu6, [0.0, 6.0, 3.0, 7.0, -1.0], [0, 1, 1, 0, 0]),
        (piecewise.hard_tanh, [-1.0, 1.0, 0.0, 2.0, -2.0], [0, 1, 1, 0, 0]),
        (piecewise.hard_sigmoid, [-3.0, 3.0, 0.0, 4.0, -4.0], [0, 1 / 6, 1 / 6, 0, 0]),
        (piecewise.hard_swish, [-3.0, 3.0, 0.0, 4.0, -4.0], [0, 1.5, 0.5, 1, 0]),
    ],
)
def test_at_a_boundary_the_lower_side_decides(function: Any, points: Any, slopes: Any, calculus: Any) -> None:
    """And the same in both modes, which `slopes` requires."""
    np.testing.assert_allclose(calculus.slopes(function, points), slopes, rtol=1e-15)


@pytest.mark.parametrize("function", [activation.sqrt, activation.rsqrt, activation.cbrt, activation.relu])
def test_the_second_derivative_is_finite_at_0(function: Any, calculus: Any) -> None:
    second = calculus.gradient(calculus.gradient(function))

    assert np.isfinite(calculus.evaluate(second, np.array([0.0]))).all()


# ------------------------------------------------------------------------------------ higher orders

SMOOTH = [f for f in REFERENCES if f not in (piecewise.floor, piecewise.ceil, piecewise.trunc, piecewise.round)]


@pytest.mark.parametrize("function", SMOOTH, ids=lambda f: f.__name__)
def test_second_derivatives_agree_with_differences_of_first_ones(function: Any, calculus: Any) -> None:
    _, low, high = REFERENCES[function]
    first = calculus.gradient(function)
    inset = (high - low) / 40
    x = np.linspace(low + 1.3 * inset, high - inset, 23)  # away from the kinks and from the ends of the domain
    step = 1e-6

    found = calculus.evaluate(calculus.gradient(first), x)
    wanted = (calculus.evaluate(first, x + step) - calculus.evaluate(first, x - step)) / (2 * step)

    # Central differences in f64: rounding 1e-16/step and truncation step² · f⁗, times values of up to 1e3.
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)

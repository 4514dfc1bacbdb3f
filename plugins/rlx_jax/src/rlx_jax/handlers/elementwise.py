"""Element by element."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.importing.walk import refuse
from rlx_core.ir.dtypes import dtype
from rlx_jax.walk import Equation, handles, rows

SAME_NAME: Final = (
    *(
        "abs",
        "acos",
        "acosh",
        "add",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "ceil",
        "cos",
        "cosh",
        "digamma",
    ),
    *("erf", "erfc", "exp", "exp2", "expm1", "floor", "imag", "lgamma", "log", "log1p", "nextafter", "real", "rsqrt"),
    *("sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "tan", "tanh"),
)
"""Primitives that have the name of a function of rlx."""

PLAIN: Final = {
    **{name: getattr(rlx, name) for name in SAME_NAME},
    "add_any": rlx.add,
    "complex": rlx.make_complex,
    "bessel_i0e": rlx.special.i0e,
    "bessel_i1e": rlx.special.i1e,
    "eq": rlx.equal,
    "erf_inv": rlx.erfinv,
    "ge": rlx.greater_equal,
    "gt": rlx.greater,
    "is_finite": rlx.isfinite,
    "le": rlx.less_equal,
    "logistic": rlx.sigmoid,
    "lt": rlx.less,
    "max": rlx.maximum,
    "min": rlx.minimum,
    "mul": rlx.multiply,
    "ne": rlx.not_equal,
    "neg": rlx.negative,
    "shift_left": rlx.bitwise_left_shift,
    "shift_right_arithmetic": rlx.bitwise_right_shift,
    "sub": rlx.subtract,
    "zeta": rlx.special.zeta,
}
"""Primitives that are a function of rlx."""

rows({name: lambda equation, *x, _function=function: _function(*x) for name, function in PLAIN.items()})
rows(
    {
        "copy device_put sharding_constraint optimization_barrier name": lambda equation, *x: (
            list(x) if equation.name in ("device_put", "optimization_barrier") else x[0]
        ),
        "convert_element_type": lambda equation, x: rlx.astype(x, equation["new_dtype"], copy=False),
        "bitcast_convert_type": lambda equation, x: rlx.bitcast(x, equation["new_dtype"]),
        "pow": lambda equation, x, y: rlx.pow(x, rlx.astype(y, equation.results[0].dtype)),
        "clamp": lambda equation, low, x, high: rlx.minimum(rlx.maximum(x, low), high),
        "not": lambda equation, x: rlx.logical_not(x) if equation.operands[0].dtype == bool else rlx.bitwise_invert(x),
        "conj": lambda equation, x: rlx.conj(rlx.astype(x, equation.results[0].dtype, copy=False)),
    }
)


@handles("lt_to", "le_to")
def compare_in_total_order(equation: Equation, x: Any, y: Any) -> Any:
    """Comparison in the order of sorting: -0 before 0, and NaN, by its sign, before or after all other values."""
    compare = rlx.less if equation.name == "lt_to" else rlx.less_equal
    return compare(_ordered(x), _ordered(y))


def _ordered(x: Any) -> Any:
    """Return floats as integers in the same order: for negative ones all bits except the sign are inverted."""
    if not dtype(x.dtype).is_float:
        return x
    bits = 8 * x.dtype.itemsize
    word = rlx.bitcast(x, f"i{bits}")
    return rlx.where(word < 0, rlx.bitwise_xor(word, 2 ** (bits - 1) - 1), word)


@handles("clz")
def leading_zeros(equation: Equation, x: Any) -> Any:
    """Number of leading 0 bits, by bisection; the number of all bits for 0."""
    bits = 8 * x.dtype.itemsize
    remaining, count = rlx.bitcast(x, f"u{bits}"), bits
    for half in (1 << k for k in reversed(range((bits - 1).bit_length()))):
        upper = rlx.bitwise_right_shift(remaining, half)
        remaining, count = rlx.where(upper > 0, upper, remaining), rlx.where(upper > 0, count - half, count)
    return rlx.astype(count - rlx.astype(remaining, rlx.i32), equation.results[0].dtype)


@handles("reduce_precision")
def reduce_precision(equation: Equation, x: Any) -> Any:
    """Round to a narrower format, in the same dtype; supported are formats that are dtypes."""
    expected = equation["exponent_bits"], equation["mantissa_bits"]
    formats = {(8, 7): rlx.bf16, (5, 10): rlx.f16, (8, 23): rlx.f32, (11, 52): rlx.f64}
    if expected not in formats:
        refuse(subject=f"reduce_precision to {expected[0]} and {expected[1]} bits")
    return rlx.astype(rlx.astype(x, formats[expected]), equation.results[0].dtype)


@handles("div")
def div(equation: Equation, x: Any, y: Any) -> Any:
    """Division, truncated toward zero for integers."""
    if equation.results[0].dtype.kind not in "iu":
        return rlx.divide(x, y)
    if equation.results[0].dtype.kind == "u":
        return rlx.floor_divide(x, y)
    return rlx.sign(x) * rlx.sign(y) * rlx.floor_divide(rlx.abs(x), rlx.abs(y))


@handles("rem")
def rem(equation: Equation, x: Any, y: Any) -> Any:
    """The remainder with the sign of x, computed exactly from the absolute values."""
    size = rlx.remainder(rlx.abs(x), rlx.abs(y)) if equation.results[0].dtype.kind != "u" else rlx.remainder(x, y)
    return rlx.where(rlx.less(x, 0), -size, size) if equation.results[0].dtype.kind != "u" else size


@handles("integer_pow")
def integer_pow(equation: Equation, x: Any) -> Any:
    """Exponentiation by squaring, with the minimum number of products of that method."""
    n, result = abs(equation["y"]), None
    while n:
        if n % 2:
            result = x if result is None else result * x
        n //= 2
        x = rlx.square(x) if n else x
    result = rlx.ones_like(x) if result is None else result
    return rlx.reciprocal(result) if equation["y"] < 0 else result


@handles("round")
def rounded(equation: Equation, x: Any) -> Any:
    """To the nearest; ties to even, or away from zero."""
    if int(equation["rounding_method"]) == 1:
        return rlx.round(x)
    truncated = rlx.trunc(x)
    return rlx.where(rlx.abs(x - truncated) >= 0.5, truncated + rlx.sign(x), truncated)


@handles("select_n")
def select_n(equation: Equation, which: Any, *cases: Any) -> Any:
    if equation.operands[0].dtype == bool:
        return rlx.where(which, cases[-1], cases[0])
    result = cases[-1]
    for number, case in reversed(list(enumerate(cases[:-1]))):
        result = rlx.where(rlx.less_equal(which, number), case, result)
    return result


@handles("and", "or", "xor")
def bitwise(equation: Equation, x: Any, y: Any) -> Any:
    kind = "logical" if equation.operands[0].dtype == bool else "bitwise"
    return getattr(rlx, f"{kind}_{equation.name}")(x, y)


@handles("shift_right_logical")
def shift_right_logical(equation: Equation, x: Any, count: Any) -> Any:
    dtype = equation.results[0].dtype
    if dtype.kind == "u":
        return rlx.bitwise_right_shift(x, count)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    shifted = rlx.bitwise_right_shift(rlx.bitcast(x, unsigned), rlx.bitcast(count, unsigned))
    return rlx.bitcast(shifted, dtype)


@handles("population_count")
def population_count(equation: Equation, x: Any) -> Any:
    """The bits that are 1, added up one after another."""
    dtype = np.dtype(equation.results[0].dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    word = rlx.bitcast(x, unsigned)
    bits = [
        rlx.bitwise_and(rlx.bitwise_right_shift(word, unsigned.type(n)), unsigned.type(1))
        for n in range(8 * dtype.itemsize)
    ]
    total = bits[0]
    for each in bits[1:]:
        total = total + each
    return rlx.bitcast(total, dtype)


@handles("polygamma")
def polygamma(equation: Equation, n: Any, x: Any) -> Any:
    """The polygamma function of a known order."""
    orders = set(n.ravel().tolist()) if isinstance(n, np.ndarray) else set()
    if len(orders) != 1:
        refuse(subject="polygamma of several orders")
    return rlx.polygamma(int(orders.pop()), x)

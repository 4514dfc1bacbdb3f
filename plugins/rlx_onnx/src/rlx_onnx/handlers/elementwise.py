"""Operations of one element of each operand."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr, smaller
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles
from rlx_onnx.walking.values import Undecided, decided, is_sizes, settled, traced

UNARY: dict[str, Any] = {
    "Abs": rlx.abs,
    "Acos": rlx.acos,
    "Acosh": rlx.acosh,
    "Asin": rlx.asin,
    "Asinh": rlx.asinh,
    "Atan": rlx.atan,
    "Atanh": rlx.atanh,
    "BitwiseNot": rlx.bitwise_invert,
    "Cos": rlx.cos,
    "Cosh": rlx.cosh,
    "Erf": rlx.erf,
    "Exp": rlx.exp,
    "HardSwish": rlx.hard_swish,
    "IsNaN": rlx.isnan,
    "Log": rlx.log,
    "Mish": rlx.mish,
    "Not": rlx.logical_not,
    "Reciprocal": rlx.reciprocal,
    "Relu": rlx.relu,
    "Round": rlx.round,
    "Sigmoid": rlx.sigmoid,
    "Sign": rlx.sign,
    "Sin": rlx.sin,
    "Sinh": rlx.sinh,
    "Softplus": rlx.softplus,
    "Sqrt": rlx.sqrt,
    "Tan": rlx.tan,
    "Tanh": rlx.tanh,
}

BINARY: dict[str, Any] = {
    "And": rlx.logical_and,
    "BitwiseAnd": rlx.bitwise_and,
    "BitwiseOr": rlx.bitwise_or,
    "BitwiseXor": rlx.bitwise_xor,
    "Or": rlx.logical_or,
    "Xor": rlx.logical_xor,
}

SIZED: dict[str, tuple[Any, Any]] = {
    "Add": (rlx.add, lambda a, b: a + b),
    "Sub": (rlx.subtract, lambda a, b: a - b),
    "Mul": (rlx.multiply, lambda a, b: a * b),
}
"""Arithmetic on traced values, and on sizes."""

COMPARISONS: dict[str, tuple[Any, str]] = {
    "Equal": (rlx.equal, "=="),
    "Greater": (rlx.greater, ">"),
    "GreaterOrEqual": (rlx.greater_equal, ">="),
    "Less": (rlx.less, "<"),
    "LessOrEqual": (rlx.less_equal, "<="),
}


def _enter_unary(name: str, function: Any) -> None:
    @handles(name)
    def unary(node: OnnxNode, x: Any) -> Any:
        return function(x)


def _enter_binary(name: str, function: Any) -> None:
    @handles(name)
    def binary(node: OnnxNode, a: Any, b: Any) -> Any:
        return function(a, b)


def _enter_sized(name: str, function: Any, on_sizes: Any) -> None:
    @handles(name, takes_sizes=True)
    def arithmetic(node: OnnxNode, a: Any, b: Any) -> Any:
        return on_dims(on_sizes, function, a, b)


def _enter_comparison(name: str, function: Any, relation: str) -> None:
    @handles(name, takes_sizes=True)
    def compared(node: OnnxNode, a: Any, b: Any) -> Any:
        return on_dims(lambda m, n: decided(relation, m, n), function, a, b, to=bool)


for _name, _of_one in UNARY.items():
    _enter_unary(_name, _of_one)
for _name, _of_two in BINARY.items():
    _enter_binary(_name, _of_two)
for _name, (_of_arrays, _of_sizes) in SIZED.items():
    _enter_sized(_name, _of_arrays, _of_sizes)
for _name, (_comparison, _relation) in COMPARISONS.items():
    _enter_comparison(_name, _comparison, _relation)


def on_dims(on_sizes: Any, function: Any, a: Any, b: Any, to: Any = None) -> Any:
    """Apply one of two functions: on sizes if both operands are sizes or known integers, else on arrays."""
    if any(map(is_sizes, (a, b))):
        if all(is_sizes(x) or (isinstance(x, np.ndarray) and x.dtype.kind in "iu") for x in (a, b)):
            left, right = (x if is_sizes(x) else x.astype(object) for x in (a, b))
            try:
                result = np.frompyfunc(on_sizes, 2, 1)(left, right)
            except Undecided:
                return function(traced(a), traced(b))
            result = np.asarray(result, object)
            return result.astype(to) if to is not None else settled(result)
        a, b = traced(a), traced(b)
    return function(a, b)


# ------------------------------------------------------------------------------------------ arithmetic


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, Expr) or isinstance(b, Expr):
        return a // b
    return int(a / b) if abs(a) < 2**52 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@handles("Div", takes_sizes=True)
def div(node: OnnxNode, a: Any, b: Any) -> Any:
    """The quotient; of integers, rounded toward zero."""
    return on_dims(_quotient, _divided, a, b)


def _divided(a: Any, b: Any) -> Any:
    dtype = dtype_of(a.dtype)
    if not dtype.is_integer:
        return rlx.divide(a, b)
    if dtype.kind == "uint":
        return rlx.floor_divide(a, b)
    return rlx.floor_divide(rlx.abs(a), rlx.abs(b)) * rlx.sign(a) * rlx.sign(b)


@handles("Mod", takes_sizes=True)
def mod(node: OnnxNode, a: Any, b: Any) -> Any:
    """The remainder, with the sign of the divisor, or of the dividend if `fmod` is set."""
    if node.get("fmod", 0):
        a, b = traced(a), traced(b)
        remaining = rlx.remainder(rlx.abs(a), rlx.abs(b))
        return rlx.where(a < 0, -remaining, remaining)
    return on_dims(lambda m, n: m % n, rlx.remainder, a, b)


@handles("Neg", takes_sizes=True)
def neg(node: OnnxNode, x: Any) -> Any:
    return np.frompyfunc(lambda n: -n, 1, 1)(x) if is_sizes(x) else rlx.negative(x)


@handles("Floor", "Ceil")
def rounded(node: OnnxNode, x: Any) -> Any:
    return rlx.floor(x) if node.op == "Floor" else rlx.ceil(x)


USUAL: dict[float, Any] = {
    2.0: rlx.square,
    0.5: rlx.sqrt,
    1.0: lambda x: x,
    -1.0: rlx.reciprocal,
    3.0: lambda x: x * x * x,
}
"""Exponents that are written out as products and roots."""


@handles("Pow")
def power(node: OnnxNode, a: Any, b: Any) -> Any:
    """a^b in the dtype of a; exponents that are known and usual are products."""
    exponent = float(b.ravel()[0]) if isinstance(b, np.ndarray) and b.size == 1 and b.ndim <= a.ndim else 0.0
    if exponent in USUAL and dtype_of(a.dtype).is_float:
        return USUAL[exponent](a)
    dtype, other = dtype_of(a.dtype), dtype_of(b.dtype)
    if dtype.is_integer and other.is_float:
        return rlx.astype(rlx.trunc(rlx.pow(rlx.astype(a, rlx.f64), rlx.astype(b, rlx.f64))), dtype)
    return rlx.astype(rlx.pow(a, rlx.astype(b, dtype)), dtype)


@handles("BitShift")
def shift(node: OnnxNode, a: Any, b: Any) -> Any:
    if node.get("direction") not in ("LEFT", "RIGHT"):
        raise FormatError(f"{node}: direction is LEFT or RIGHT")
    return rlx.bitwise_left_shift(a, b) if node.get("direction") == "LEFT" else rlx.bitwise_right_shift(a, b)


@handles("Max", "Min", takes_sizes=True)
def extreme(node: OnnxNode, *operands: Any) -> Any:
    function = rlx.maximum if node.op == "Max" else rlx.minimum

    def of_sizes(a: Any, b: Any) -> Any:
        try:
            return a if decided(">=", a, b) == (node.op == "Max") else b
        except Undecided:
            least = smaller(a, b)
            return a + b - least if node.op == "Max" else least

    return reduce(lambda a, b: on_dims(of_sizes, function, a, b), operands)


@handles("Sum")
def total(node: OnnxNode, *operands: Any) -> Any:
    return reduce(rlx.add, operands)


@handles("Mean")
def average(node: OnnxNode, *operands: Any) -> Any:
    return reduce(rlx.add, operands) / len(operands)


@handles("Where", takes_sizes=True)
def where(node: OnnxNode, condition: Any, a: Any, b: Any) -> Any:
    if is_sizes(a) or is_sizes(b):
        if isinstance(condition, np.ndarray) and all(isinstance(x, np.ndarray) for x in (a, b)):
            return settled(np.where(condition, a, b))
        a, b = traced(a), traced(b)
    return rlx.where(condition, a, b)


@handles("Clip")
def clip(node: OnnxNode, x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else rlx.maximum(x, low)
    return x if high is None else rlx.minimum(x, high)


@handles("IsInf")
def is_inf(node: OnnxNode, x: Any) -> Any:
    result = rlx.isinf(x)
    if not node.get("detect_negative", 1):
        result = rlx.logical_and(result, x > 0)
    if not node.get("detect_positive", 1):
        result = rlx.logical_and(result, x < 0)
    return result

"""Operations of one element of each operand, and activations."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Expr, smaller
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows
from rlx_onnx.walking.values import Undecided, decided, is_sizes, settled, traced

SAME_NAME = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "IsNaN"),
    *(
        "Log",
        "Mish",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Sqrt",
        "Tan",
        "Tanh",
    ),
)
"""Operations that have the name of a function of rlx, in other case."""

UNARY: dict[str, Any] = {
    **{name: getattr(rlx, name.lower()) for name in SAME_NAME},
    "BitwiseNot": rlx.bitwise_invert,
    "HardSwish": rlx.hard_swish,
    "Not": rlx.logical_not,
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
    "Div": (lambda a, b: _divided(a, b), lambda a, b: _quotient(a, b)),
}
"""Arithmetic on traced values, and on sizes."""

COMPARISONS: dict[str, tuple[Any, str]] = {
    "Equal": (rlx.equal, "=="),
    "Greater": (rlx.greater, ">"),
    "GreaterOrEqual": (rlx.greater_equal, ">="),
    "Less": (rlx.less, "<"),
    "LessOrEqual": (rlx.less_equal, "<="),
}

rows({name: lambda node, x, *, f=f: f(x) for name, f in UNARY.items()})
rows({name: lambda node, a, b, *, f=f: f(a, b) for name, f in BINARY.items()})
rows({name: lambda node, a, b, *, f=f: on_dims(f[1], f[0], a, b) for name, f in SIZED.items()}, takes_sizes=True)
rows(
    {
        name: lambda node, a, b, *, f=f, relation=relation: on_dims(
            lambda m, n: decided(relation, m, n), f, a, b, to=bool
        )
        for name, (f, relation) in COMPARISONS.items()
    },
    takes_sizes=True,
)
rows(
    {
        "Sum": lambda node, *operands: reduce(rlx.add, operands),
        "Mean": lambda node, *operands: reduce(rlx.add, operands) / len(operands),
    }
)


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


def _divided(a: Any, b: Any) -> Any:
    """The quotient; of integers, rounded toward zero."""
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


rows(
    {"Neg": lambda node, x: np.frompyfunc(lambda n: -n, 1, 1)(x) if is_sizes(x) else rlx.negative(x)}, takes_sizes=True
)


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


# ----------------------------------------------------------------------------------------- activations


rows(
    {
        "Celu": lambda node, x: rlx.celu(x, node.get("alpha", 1.0)),
        "Elu": lambda node, x: rlx.elu(x, node.get("alpha", 1.0)),
        "LeakyRelu": lambda node, x: rlx.leaky_relu(x, node.get("alpha", 0.01)),
        "PRelu": lambda node, x, slope: rlx.where(x < 0, x * slope, x),
        "ThresholdedRelu": lambda node, x: rlx.where(x > node.get("alpha", 1.0), x, rlx.zeros_like(x)),
        "HardSigmoid": lambda node, x: rlx.clip(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1),
        "Softsign": lambda node, x: x / (1 + rlx.abs(x)),
        "Gelu": lambda node, x: (
            rlx.gelu_approx(x) if node.choice("approximate", "none", "tanh") == "tanh" else rlx.gelu(x)
        ),
        "Swish": lambda node, x: (
            rlx.silu(x) if node.get("alpha", 1.0) == 1.0 else x * rlx.sigmoid(node.get("alpha", 1.0) * x)
        ),
    }
)


@handles("Selu")
def selu(node: OnnxNode, x: Any) -> Any:
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * rlx.where(x > 0, x, alpha * rlx.expm1(rlx.minimum(x, 0)))


@handles("Shrink")
def shrink(node: OnnxNode, x: Any) -> Any:
    """x moved toward zero by `bias` beyond ±`lambd`, and 0 between."""
    edge, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    number = np.asarray(bias, x.dtype if dtype_of(x.dtype).is_integer else np.float32)
    return rlx.astype(rlx.where(x < -edge, x + number, rlx.where(x > edge, x - number, rlx.zeros_like(x))), x.dtype)

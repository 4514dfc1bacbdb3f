"""Export of ops of rlx, each as equivalent operations of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import UnsupportedError
from rlx_core.ir.dtypes import bool_, i32, i64
from rlx_onnx.exporting.writer import Writer, emits, rows

SAME_NAME = (
    *(
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Cos",
        "Cosh",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Log",
    ),
    *("Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
)
"""Operations of one operand that have the name of an op of rlx, in other case."""

UNARY = {
    **{f"rlx.{name.lower()}": name for name in SAME_NAME},
    "rlx.bitwise_not": "BitwiseNot",
    "rlx.hard_swish": "HardSwish",
    "rlx.is_inf": "IsInf",
    "rlx.is_nan": "IsNaN",
    "rlx.logical_not": "Not",
    "rlx.optimization_barrier": "Identity",
    "rlx.stop_gradient": "Identity",
}

BINARY = {
    **{f"rlx.{name.lower()}": name for name in ("Add", "Div", "MatMul", "Max", "Min", "Mod", "Mul", "Pow", "Sub")},
    "rlx.bitwise_and": "BitwiseAnd",
    "rlx.bitwise_or": "BitwiseOr",
    "rlx.bitwise_xor": "BitwiseXor",
    "rlx.eq": "Equal",
    "rlx.ge": "GreaterOrEqual",
    "rlx.gt": "Greater",
    "rlx.le": "LessOrEqual",
    "rlx.logical_and": "And",
    "rlx.logical_or": "Or",
    "rlx.logical_xor": "Xor",
    "rlx.lt": "Less",
}

REDUCTIONS = {
    "rlx.log_sum_exp": "ReduceLogSumExp",
    "rlx.mean": "ReduceMean",
    "rlx.prod": "ReduceProd",
    "rlx.reduce_max": "ReduceMax",
    "rlx.reduce_min": "ReduceMin",
    "rlx.sum": "ReduceSum",
}


@emits(*UNARY)
def unary(w: Writer, node: Any, x: str) -> Any:
    return w(_of_bools(UNARY[node.op.name], node), x)


@emits(*BINARY)
def binary(w: Writer, node: Any, a: str, b: str) -> Any:
    op, (left, right) = BINARY[node.op.name], (each.dtype for each in node.operand_types)
    if op == "Mod" and node.type.dtype.is_float:
        # ONNX's own remainder of floats has the sign of the dividend.
        return w("Sub", a, w("Mul", w("Floor", w("Div", a, b)), b))
    if op == "Div" and left.is_integer:
        a, b = w.cast(a, node.type.dtype), w.cast(b, node.type.dtype)
    elif left is not right:
        raise UnsupportedError(f"{node.op.name} of {left} and {right} is not written", hint="a cast before it")
    return w(_of_bools(op, node), a, b)


def _of_bools(op: str, node: Any) -> str:
    """The operation itself, or the logical one where ONNX's operation on bits takes no bools."""
    return op.removeprefix("Bitwise") if node.type.dtype is bool_ else op


@emits(*REDUCTIONS)
def reduced(w: Writer, node: Any, x: str) -> Any:
    if not node.op.axes:
        return w("Identity", x)
    dtype, to = node.operand_types[0].dtype, node.type.dtype
    values = w.cast(x, to) if dtype is not to else x
    return w(REDUCTIONS[node.op.name], values, w.ints(node.op.axes), keepdims=int(node.op.keep_dim))


rows(
    {
        "rlx.ne": lambda w, node, a, b: w("Not", w("Equal", a, b)),
        "rlx.square": lambda w, node, x: w("Mul", x, x),
        "rlx.rsqrt": lambda w, node, x: w("Reciprocal", w("Sqrt", x)),
        "rlx.gelu_approx": lambda w, node, x: w("Gelu", x, approximate="tanh"),
        "rlx.silu": lambda w, node, x: w("Mul", x, w("Sigmoid", x)),
        "rlx.cast": lambda w, node, x: w.cast(x, node.type.dtype),
        "rlx.where": lambda w, node, c, a, b: w("Where", c, a, b),
        "rlx.trunc": lambda w, node, x: w("Mul", w("Sign", x), w("Floor", w("Abs", x))),
        "rlx.cumsum": lambda w, node, x: w(
            "CumSum",
            x,
            w.constant(node.op.axis, np.int64),
            exclusive=int(node.op.exclusive),
            reverse=int(node.op.reverse),
        ),
        "rlx.softmax rlx.log_softmax": lambda w, node, x: w(
            "Softmax" if node.op.name == "rlx.softmax" else "LogSoftmax", x, axis=node.op.axis
        ),
    }
)


@emits("rlx.erfc")
def erfc(w: Writer, node: Any, x: str) -> Any:
    """Emit 1 − erf(x): its error is at most the rounding error of 1, which exceeds the result in the right tail."""
    return w("Sub", w.constant(1, node.type.dtype.numpy), w("Erf", x))


@emits("rlx.log1p")
def log1p(w: Writer, node: Any, x: str) -> Any:
    """2·artanh(x / (2 + x)), which is exact near 0, where x is small; ln(1 + x) elsewhere."""
    one, two = (w.constant(n, node.type.dtype.numpy) for n in (1, 2))
    near = w("Mul", two, w("Atanh", w("Div", x, w("Add", two, x))))
    return w("Where", w("Less", w("Abs", x), w.constant(0.5, node.type.dtype.numpy)), near, w("Log", w("Add", one, x)))


@emits("rlx.expm1")
def expm1(w: Writer, node: Any, x: str) -> Any:
    """2t / (1 - t) with t = tanh(x / 2), which is exact near 0, where x is small; e^x - 1 elsewhere."""
    one, two = (w.constant(n, node.type.dtype.numpy) for n in (1, 2))
    t = w("Tanh", w("Div", x, two))
    near = w("Div", w("Mul", two, t), w("Sub", one, t))
    return w("Where", w("Less", w("Abs", x), one), near, w("Sub", w("Exp", x), one))


@emits("rlx.sort")
def sort(w: Writer, node: Any, x: str) -> Any:
    axis = node.op.axis % node.operand_types[0].rank
    count = w.shape((node.operand_types[0].shape[axis],))
    result = w("TopK", x, count, results=2, axis=axis, largest=int(node.op.descending))
    return tuple(result)[: len(node.results)]


@emits("rlx.any", "rlx.all")
def quantified(w: Writer, node: Any, x: str) -> Any:
    op = "ReduceMax" if node.op.name == "rlx.any" else "ReduceMin"
    result = w(op, w.cast(x, i32), w.ints(node.op.axes), keepdims=int(node.op.keep_dim))
    return w.cast(result, bool_)


@emits("rlx.arg_max", "rlx.arg_min")
def arg_extreme(w: Writer, node: Any, x: str) -> Any:
    op = "ArgMax" if node.op.name == "rlx.arg_max" else "ArgMin"
    result = w(op, x, axis=node.op.axis, keepdims=int(node.op.keep_dim))
    return result if node.type.dtype is i64 else w.cast(result, node.type.dtype)


@emits("rlx.layer_norm")
def layer_norm(w: Writer, node: Any, x: str, gamma: str | None = None, beta: str | None = None) -> Any:
    rank = node.operand_types[0].rank
    if tuple(axis % rank for axis in node.op.axes) != (rank - 1,):
        raise UnsupportedError("layer_norm over other axes than the last is not written")
    size = node.operand_types[0].shape[-1]
    scale = gamma or w("Expand", w.constant(np.ones(1), node.type.dtype.numpy), w.shape((size,)))
    return w("LayerNormalization", x, scale, *([beta] if beta else []), axis=-1, epsilon=node.op.eps)


@emits("rlx.batch_norm_inference")
def batch_norm(w: Writer, node: Any, x: str, gamma: str, beta: str, mean: str, var: str) -> Any:
    if node.op.axis % node.operand_types[0].rank != 1:
        raise UnsupportedError("a batch norm whose channels are not axis 1 is not written")
    return w("BatchNormalization", x, gamma, beta, mean, var, epsilon=node.op.eps)

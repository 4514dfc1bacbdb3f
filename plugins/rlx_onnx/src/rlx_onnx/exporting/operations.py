"""Export of ops of rlx, each as equivalent operations of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import UnsupportedError
from rlx_core.ir.dtypes import bool_, i32, i64
from rlx_onnx.exporting.writer import TABLE, Writer, emits

__all__ = ["TABLE"]

UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_not": "BitwiseNot",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "gelu": "Gelu",
    "hard_swish": "HardSwish",
    "is_inf": "IsInf",
    "is_nan": "IsNaN",
    "log": "Log",
    "logical_not": "Not",
    "mish": "Mish",
    "neg": "Neg",
    "optimization_barrier": "Identity",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "stop_gradient": "Identity",
    "tan": "Tan",
    "tanh": "Tanh",
}

BINARY = {
    "add": "Add",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "div": "Div",
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "lt": "Less",
    "matmul": "MatMul",
    "max": "Max",
    "min": "Min",
    "mod": "Mod",
    "mul": "Mul",
    "pow": "Pow",
    "sub": "Sub",
}

REDUCTIONS = {
    "log_sum_exp": "ReduceLogSumExp",
    "mean": "ReduceMean",
    "prod": "ReduceProd",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "sum": "ReduceSum",
}


def _enter_unary(name: str, op: str) -> None:
    @emits(f"rlx.{name}")
    def unary(w: Writer, node: Any, x: str) -> Any:
        return w(_of_bools(op, node), x)


def _enter_binary(name: str, op: str) -> None:
    @emits(f"rlx.{name}")
    def binary(w: Writer, node: Any, a: str, b: str) -> Any:
        left, right = (each.dtype for each in node.operand_types)
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


def _enter_reduction(name: str, op: str) -> None:
    @emits(f"rlx.{name}")
    def reduced(w: Writer, node: Any, x: str) -> Any:
        if not node.op.axes:
            return w("Identity", x)
        dtype, to = node.operand_types[0].dtype, node.type.dtype
        values = w.cast(x, to) if dtype is not to else x
        return w(op, values, w.ints(node.op.axes), keepdims=int(node.op.keep_dim))


for _name, _op in UNARY.items():
    _enter_unary(_name, _op)
for _name, _op in BINARY.items():
    _enter_binary(_name, _op)
for _name, _op in REDUCTIONS.items():
    _enter_reduction(_name, _op)


@emits("rlx.ne")
def not_equal(w: Writer, node: Any, a: str, b: str) -> Any:
    return w("Not", w("Equal", a, b))


@emits("rlx.square")
def square(w: Writer, node: Any, x: str) -> Any:
    return w("Mul", x, x)


@emits("rlx.rsqrt")
def rsqrt(w: Writer, node: Any, x: str) -> Any:
    return w("Reciprocal", w("Sqrt", x))


@emits("rlx.gelu_approx")
def gelu_approx(w: Writer, node: Any, x: str) -> Any:
    return w("Gelu", x, approximate="tanh")


@emits("rlx.silu")
def silu(w: Writer, node: Any, x: str) -> Any:
    return w("Mul", x, w("Sigmoid", x))


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


@emits("rlx.cast")
def cast(w: Writer, node: Any, x: str) -> Any:
    return w.cast(x, node.type.dtype)


@emits("rlx.where")
def where(w: Writer, node: Any, c: str, a: str, b: str) -> Any:
    return w("Where", c, a, b)


@emits("rlx.trunc")
def trunc(w: Writer, node: Any, x: str) -> Any:
    return w("Mul", w("Sign", x), w("Floor", w("Abs", x)))


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


@emits("rlx.cumsum")
def cumsum(w: Writer, node: Any, x: str) -> Any:
    return w(
        "CumSum", x, w.constant(node.op.axis, np.int64), exclusive=int(node.op.exclusive), reverse=int(node.op.reverse)
    )


@emits("rlx.softmax", "rlx.log_softmax")
def softmax(w: Writer, node: Any, x: str) -> Any:
    return w("Softmax" if node.op.name == "rlx.softmax" else "LogSoftmax", x, axis=node.op.axis)


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

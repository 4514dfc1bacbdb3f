"""Export of ops of rlx, each as equivalent operations of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import UnsupportedError
from rlx_core.ir.dims import Expr
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


# ------------------------------------------------------------------------ layout, indexing and windows


@emits("rlx.reshape")
def reshape(w: Writer, node: Any, x: str) -> Any:
    dims = node.type.shape
    if sum(isinstance(each, Expr) for each in dims) == 1 and 0 not in dims:
        return w("Reshape", x, w.ints(-1 if isinstance(each, Expr) else each for each in dims))
    return w("Reshape", x, w.shape(dims), allowzero=1)


rows(
    {
        "rlx.expand": lambda w, node, x: w("Expand", x, w.shape(node.type.shape)),
        "rlx.full": lambda w, node, x: w("Expand", x, w.shape(node.type.shape)),
        "rlx.transpose": lambda w, node, x: w("Transpose", x, perm=list(node.op.perm)),
        "rlx.concat": lambda w, node, *parts: w("Concat", *parts, axis=node.op.axis),
        "rlx.tril rlx.triu": lambda w, node, x: w(
            "Trilu", x, w.constant(node.op.k, np.int64), upper=int(node.op.name == "rlx.triu")
        ),
        "rlx.dim_value": lambda w, node: w.count(node.op.size),
        "rlx.conv": lambda w, node, x, weights: w(
            "Conv", x, weights, group=node.op.groups, **_pads(node.op, node.type.rank - 2)
        ),
        "rlx.max_pool": lambda w, node, x: w(
            "MaxPool", x, kernel_shape=list(node.op.kernel), **_pads(node.op, node.type.rank - 2)
        ),
    }
)


@emits("rlx.narrow")
def narrow(w: Writer, node: Any, x: str) -> Any:
    start, step = node.op.start, node.op.step
    end = start + (node.op.length - 1) * step + 1
    return w("Slice", x, w.shape((start,)), w.shape((end,)), w.ints([node.op.axis]), w.ints([step]))


@emits("rlx.flip")
def flip(w: Writer, node: Any, x: str) -> Any:
    axes = list(node.op.axes)
    return w("Slice", x, *(w.ints(each) for each in ([-1] * len(axes), [-(2**62)] * len(axes), axes, [-1] * len(axes))))


@emits("rlx.pad")
def pad(w: Writer, node: Any, x: str, value: str | None = None) -> Any:
    if node.op.between is not None and any(node.op.between):
        raise UnsupportedError("cells between elements are not written")
    pads = w.shape((*node.op.lo, *node.op.hi))
    return w("Pad", x, pads, value) if value else w("Pad", x, pads)


@emits("rlx.iota")
def iota(w: Writer, node: Any) -> Any:
    shape, axis = node.type.shape, node.op.axis
    steps = w("Range", *(w.constant(0, np.int64), w.count(shape[axis]), w.constant(1, np.int64)))
    column = w("Reshape", steps, w.ints([-1, *(1,) * (len(shape) - axis - 1)]))
    result = w("Expand", column, w.shape(shape)) if len(shape) > 1 else column
    return result if node.type.dtype is i64 else w.cast(result, node.type.dtype)


# ------------------------------------------------------------------------------------------ indexing


@emits("rlx.gather")
def gather(w: Writer, node: Any, x: str, indices: str) -> Any:
    if node.op.batch_dims or node.op.oob != "error":
        raise UnsupportedError(f"a gather with batch_dims={node.op.batch_dims}, oob={node.op.oob!r} is not written")
    return w("Gather", x, _signed(w, node, indices), axis=node.op.axis)


def _signed(w: Writer, node: Any, indices: str) -> str:
    dtype = node.operand_types[1].dtype
    return indices if dtype in (i32, i64) else w.cast(indices, i64)


@emits("rlx.gather_nd")
def gather_nd(w: Writer, node: Any, x: str, indices: str) -> Any:
    if node.op.oob != "error":
        raise UnsupportedError(f"a gather_nd with oob={node.op.oob!r} is not written")
    return w("GatherND", x, w.cast(indices, i64), batch_dims=node.op.batch_dims)


@emits("rlx.take_along_axis")
def take_along_axis(w: Writer, node: Any, x: str, indices: str) -> Any:
    if node.op.oob != "error":
        raise UnsupportedError(f"a take_along_axis with oob={node.op.oob!r} is not written")
    return w("GatherElements", x, _signed(w, node, indices), axis=node.op.axis)


@emits("rlx.scatter_nd")
def scatter_nd(w: Writer, node: Any, x: str, indices: str, updates: str) -> Any:
    if node.op.oob != "error" or node.op.batch_dims:
        raise UnsupportedError("a scatter_nd with batch axes, or indices outside, is not written")
    mode = {"set": "none"}.get(node.op.mode, node.op.mode)
    return w("ScatterND", x, w.cast(indices, i64), updates, reduction=mode)


@emits("rlx.top_k")
def top_k(w: Writer, node: Any, x: str) -> Any:
    result = w("TopK", x, w.shape((node.op.k,)), results=2, axis=node.op.axis, largest=int(node.op.largest))
    values, places = result
    to = node.types[1].dtype
    return values, (places if to is i64 else w.cast(places, to))


# ------------------------------------------------------------------------------------------ windows


def _pads(op: Any, rank: int) -> dict[str, Any]:
    """Return the geometry of windows; the default of strides and dilations is 1, of pads 0."""
    return {
        "strides": list(op.stride or (1,) * rank),
        "dilations": list(op.dilation or (1,) * rank),
        "pads": [int(n) for n in (*(op.lo or (0,) * rank), *(op.hi or (0,) * rank))],
    }


@emits("rlx.conv_transpose")
def conv_transpose(w: Writer, node: Any, x: str, weights: str) -> Any:
    more = list(node.op.output_padding or (0,) * (node.type.rank - 2))
    return w(
        "ConvTranspose", x, weights, group=node.op.groups, output_padding=more, **_pads(node.op, node.type.rank - 2)
    )


@emits("rlx.avg_pool")
def avg_pool(w: Writer, node: Any, x: str) -> Any:
    with_pads = int(node.op.count_include_pad)
    geometry = _pads(node.op, node.type.rank - 2)
    return w("AveragePool", x, kernel_shape=list(node.op.kernel), count_include_pad=with_pads, **geometry)

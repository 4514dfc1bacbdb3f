"""Export of ops that move elements, index them, or compute over windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.errors import UnsupportedError
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import i32, i64
from rlx_onnx.exporting.writer import Writer, emits, rows


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

"""Products with weights, blocks of them, and embedding tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.nn.floats import floats, narrowed
from rlx_core.ops import blocks, creation
from rlx_core.ops.arguments import choice, whole
from rlx_core.ops.arithmetic import add, divide, maximum, multiply
from rlx_core.ops.array_shapes import expand_dims, shape_of
from rlx_core.ops.array_statistics import any, max, mean, sum
from rlx_core.ops.comparison import not_equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import matmul, operand
from rlx_core.ops.selection import where
from rlx_core.ops.structural import reshape

if TYPE_CHECKING:
    from rlx_core.ir.apply import OpFunction
    from rlx_core.ir.op import Op
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "bilinear",
    "embedding",
    "embedding_bag",
    "linear",
    "one_hot",
    "residual_rms_norm",
    "shared_linear_pair",
    "swiglu",
]


@checked_call
def linear(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    activation: Op | OpFunction[Any] | str | None = None,
    name: str | None = None,
) -> Array:
    """`activation(x @ weight + bias)`, with `weight` as `[in, out]`; records the linear block.

    Args:
        x: `[.., in]`.
        weight: `[in, out]`; pass `weight.T` for a weight stored as `[out, in]`.
        bias: `[out]`, or none.
        activation: An op of one operand, its function or its name ("gelu").
        name: A name for the block, inherited by every op that it is lowered to.

    >>> linear([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    operands = (x, weight) if bias is None else (x, weight, bias)
    return blocks.linear(*operands, activation=activation, has_bias=bias is not None, name=name)


@checked_call
def shared_linear_pair(x: ArrayLike, w1: ArrayLike, w2: ArrayLike) -> tuple[Array, Array]:
    """`x @ w1` and `x @ w2` as one product with the concatenated weights."""
    return blocks.shared_linear_pair(x, w1, w2, slot=0), blocks.shared_linear_pair(x, w1, w2, slot=1)


@checked_call
def swiglu(x: ArrayLike, up_w: ArrayLike, gate_w: ArrayLike, down_w: ArrayLike, *, name: str | None = None) -> Array:
    """The gated feed-forward layer `(silu(x @ gate_w) * (x @ up_w)) @ down_w`; records its block."""
    return blocks.swiglu(x, up_w, gate_w, down_w, name=name)


@checked_call
def residual_rms_norm(
    x: ArrayLike, residual: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *, eps: float = 1e-6
) -> Array:
    """`rms_norm(x + residual, weight, bias)`; records its block."""
    operands = (x, residual, weight) if bias is None else (x, residual, weight, bias)
    return blocks.residual_rms_norm(*operands, eps=eps)


@checked_call
def embedding(ids: ArrayLike, weight: ArrayLike) -> Array:
    """The rows of `weight` at integer `ids`: `[.., features]`.

    Raises:
        DtypeError: The ids are not integers.
        IndexRangeError (at run time): An id is out of range.
    """
    return gather(weight, ids, axis=0)


@checked_call
def embedding_bag(
    ids: ArrayLike,
    weight: ArrayLike,
    *,
    mode: Literal["mean", "sum", "max"] = "mean",
    per_sample_weights: ArrayLike | None = None,
    padding_idx: int | None = None,
) -> Array:
    """The rows of `weight` at each bag of ids, reduced to one: their mean, sum or maximum.

    Args:
        ids: int[.., n], bags of n.
        weight: f[rows, features].
        mode: "mean", "sum" or "max".
        per_sample_weights: f[.., n], the weight of each id; only for "sum".
        padding_idx: An id that is ignored, used to pad bags; it may be out of range. A bag of padding alone is 0.

    Returns:
        f[.., features].

    Raises:
        ConfigError: The mode is unknown, or `per_sample_weights` are given for a mode other than "sum".
        DtypeError: The ids are not integers.
        ShapeError: The ids have no axis, or `per_sample_weights` do not have their shape.
        IndexRangeError (at run time): An id is out of range.

    >>> embedding_bag([[0, 2]], [[1.0], [5.0], [3.0]]).tolist()
    [[2.0]]
    """
    choice("embedding_bag: mode", mode, ("mean", "sum", "max"))
    bags, shape = operand(ids), tuple(shape_of(ids))
    if not shape:
        raise ShapeError("embedding_bag: ids must be [.., n], not a scalar")
    optional = {} if per_sample_weights is None else {"per_sample_weights": per_sample_weights}
    result_dtype, (rows, *shares) = floats("embedding_bag", weight=weight, **optional)
    if shares and mode != "sum":
        raise ConfigError(f"embedding_bag: per_sample_weights are for the mode sum, not {mode}")
    if shares and tuple(shares[0].shape) != shape:
        raise ShapeError(f"embedding_bag: per_sample_weights must be {list(shape)}, not {list(shares[0].shape)}")
    is_kept = None if padding_idx is None else not_equal(bags, whole("embedding_bag: padding_idx", padding_idx))
    bag_rows = gather(rows, bags if is_kept is None else where(is_kept, bags, 0), axis=0)
    if shares:
        bag_rows = multiply(bag_rows, expand_dims(shares[0], -1))
    if is_kept is None:
        whole_bag = (
            max(bag_rows, axis=-2)
            if mode == "max"
            else sum(bag_rows, axis=-2)
            if mode == "sum"
            else mean(bag_rows, axis=-2)
        )
        return narrowed(whole_bag, result_dtype)
    is_there = expand_dims(is_kept, -1)
    if mode == "max":
        largest = max(where(is_there, bag_rows, -math.inf), axis=-2)
        return narrowed(where(any(is_there, axis=-2), largest, 0.0), result_dtype)
    total = sum(where(is_there, bag_rows, 0.0), axis=-2)
    if mode == "sum":
        return narrowed(total, result_dtype)
    counted = maximum(sum(cast(is_there, to=result_dtype.accumulator), axis=-2), 1.0)
    return narrowed(divide(total, counted), result_dtype)


@checked_call
def bilinear(x1: ArrayLike, x2: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """`Σ x1[i]·weight[i, j, k]·x2[j]` over i and j, `+ bias`: features that are linear in each of the two operands.

    Args:
        x1: f[.., i].
        x2: f[.., j].
        weight: f[i, j, out]; PyTorch's, which is `[out, i, j]`, is passed as `rlx.moveaxis(weight, 0, -1)`.
        bias: f[out], or none.

    Raises:
        ShapeError: The operands do not fit.
    """
    result_dtype, (x, y, weights, *biases) = floats(
        "bilinear", x1=x1, x2=x2, weight=weight, **({} if bias is None else {"bias": bias})
    )
    if weights.ndim != 3:
        raise ShapeError(f"bilinear: weight must be [i, j, out], not of {weights.ndim} axes")
    i, j, out = weights.shape
    lead = tuple(x.shape[:-1])
    if not x.ndim or (x.shape[-1], *y.shape) != (i, *lead, j):
        raise ShapeError(f"bilinear: x1 {list(x.shape)} and x2 {list(y.shape)} do not fit weight {list(weights.shape)}")
    left = reshape(matmul(x, reshape(weights, (i, j * out))), (*lead, j, out))
    result = reshape(matmul(reshape(y, (*lead, 1, j)), left), (*lead, out))
    return narrowed(add(result, biases[0]) if biases else result, result_dtype)


@checked_call
def one_hot(x: ArrayLike, num_classes: Dim, *, dtype: DType | str = f32) -> Array:
    """1 at the index given by each integer of `x` and 0 elsewhere, along a new last axis; an index out of range gives zeros."""
    return creation.one_hot(x, depth=num_classes, dtype=as_dtype(dtype))

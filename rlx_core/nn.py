"""The functions models are written with: `from rlx_core import nn`.

A layer that HIR knows as a block records the block, so that the fusion policy decides what it becomes; everything else is the
op. Weights multiply from the right: `w` is `[in, out]`, and one that is stored `[out, in]` is passed as `w.T`, which stays a
view. Sizes that can be read off the operands are not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops import batch_norm as _batch_norm
from rlx_core.ops import blocks, normalization
from rlx_core.ops import rope as _rope
from rlx_core.ops.activation import gelu as _gelu
from rlx_core.ops.activation import gelu_approx
from rlx_core.ops.arguments import choice, flag, whole
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.attention import attention as _attention
from rlx_core.ops.attention_masks import AttentionLayout, MaskKind
from rlx_core.ops.attention_scores import EmptyRow
from rlx_core.ops.comparison import equal, not_equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.arguments import Layout, channel_axis
from rlx_core.ops.convolution.layers import conv, conv_transpose, fold, unfold
from rlx_core.ops.creation import iota, ones, zeros
from rlx_core.ops.fourier.mel import log_mel
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import operand
from rlx_core.ops.loss import (
    REDUCTIONS,
    Reduction,
    binary_cross_entropy_with_logits,
    mean_squared_error,
    softmax_cross_entropy_with_logits,
)
from rlx_core.ops.pooling.layers import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_avg_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    min_pool,
)
from rlx_core.ops.random.bits import Dropout
from rlx_core.ops.random.keys import one_key
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.resize.layers import pixel_shuffle, pixel_unshuffle, resize
from rlx_core.ops.rope import RopeLayout, RopeStyle
from rlx_core.ops.rope_tables import rope_tables
from rlx_core.ops.statistics import as_axes
from rlx_core.ops.structural import reshape, sum_axes
from rlx_core.public import absent
from rlx_core.sequences import gated_delta_net, gru, linear_attention, lstm, selective_scan, update_cache
from rlx_core.trees.key import Key

if TYPE_CHECKING:  # with the signatures that the stub has
    from rlx_core import (
        elu,
        hard_sigmoid,
        hard_swish,
        hard_tanh,
        leaky_relu,
        log_softmax,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        softmax,
        softplus,
        tanh,
    )
    from rlx_core.ir.apply import OpFunction
    from rlx_core.ir.op import Op
    from rlx_core.typing import Array, ArrayLike
else:
    from rlx_core.ops.activation import relu, sigmoid, silu, softplus, tanh
    from rlx_core.ops.piecewise import elu, hard_sigmoid, hard_swish, hard_tanh, leaky_relu, relu6, selu
    from rlx_core.ops.softmax import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "attention",
    "avg_pool",
    "batch_norm",
    "batch_norm_inference",
    "binary_cross_entropy_with_logits",
    "conv",
    "conv_transpose",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "fold",
    "gated_delta_net",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "group_norm",
    "gru",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_attention",
    "log_mel",
    "log_softmax",
    "lp_pool",
    "lstm",
    "max_pool",
    "mean_squared_error",
    "min_pool",
    "one_hot",
    "pixel_shuffle",
    "pixel_unshuffle",
    "relu",
    "relu6",
    "residual_rms_norm",
    "resize",
    "rms_norm",
    "rope",
    "selective_scan",
    "selu",
    "shared_linear_pair",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swiglu",
    "tanh",
    "unfold",
    "update_cache",
]


# ------------------------------------------------------------------------------------------- layers


def linear(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    *,
    activation: Op | OpFunction[Any] | str | None = None,
    name: str | None = None,
) -> Array:
    """`activation(x @ w + b)`, with `w` as `[in, out]`; records the linear block.

    Args:
        x: `[.., in]`.
        w: `[in, out]`; pass `w.T` for a weight that is stored the other way.
        b: `[out]`, or none.
        activation: An op of one operand, its function or its name ("gelu").
        name: A name for the block, which every op it becomes inherits.

    >>> linear([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    operands = (x, w) if b is None else (x, w, b)
    return blocks.linear(*operands, activation=activation, has_bias=b is not None, name=name)


def shared_linear_pair(x: ArrayLike, w1: ArrayLike, w2: ArrayLike) -> tuple[Array, Array]:
    """`x @ w1` and `x @ w2` as one product with both weights side by side."""
    return blocks.shared_linear_pair(x, w1, w2, slot=0), blocks.shared_linear_pair(x, w1, w2, slot=1)


def swiglu(x: ArrayLike, up_w: ArrayLike, gate_w: ArrayLike, down_w: ArrayLike, *, name: str | None = None) -> Array:
    """The gated feed-forward layer `(silu(x @ gate_w) * (x @ up_w)) @ down_w`; records its block."""
    return blocks.swiglu(x, up_w, gate_w, down_w, name=name)


def residual_rms_norm(
    x: ArrayLike, residual: ArrayLike, gamma: ArrayLike, beta: ArrayLike | None = None, *, eps: float = 1e-6
) -> Array:
    """`rms_norm(x + residual, gamma, beta)`; records its block."""
    operands = (x, residual, gamma) if beta is None else (x, residual, gamma, beta)
    return blocks.residual_rms_norm(*operands, eps=eps)


def embedding(ids: ArrayLike, table: ArrayLike) -> Array:
    """The rows of `table` that integer `ids` name: `[.., features]`.

    Raises:
        DtypeError: The ids are not integers.
        IndexRangeError: When it runs: an id is outside the table.
    """
    return gather(table, ids, axis=0)


def one_hot(ids: ArrayLike, depth: Dim, *, dtype: DType | str = f32) -> Array:
    """1 at the place that each id names and 0 elsewhere, along a new last axis; an id outside is a row of zeros."""
    labels = operand(ids)
    column = reshape(labels, (*labels.shape, 1))
    return cast(equal(column, iota(axis=0, shape=(depth,))), to=as_dtype(dtype))


# ------------------------------------------------------------------------------------- activations


def gelu(x: ArrayLike, *, approximate: bool = False) -> Array:
    """`x · Φ(x)`; `approximate` takes the tanh formula, which is another function (it differs by up to 5e-4)."""
    return gelu_approx(x) if flag("gelu: approximate", approximate) else _gelu(x)


# ------------------------------------------------------------------------------------------- norms


def layer_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    axes: int | tuple[int, ...] = -1,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit (biased) variance over `axes`, then `· gamma + beta`."""
    return normalization.layer_norm(x, gamma, beta, axes=as_axes(axes), eps=eps)


def rms_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    axes: int | tuple[int, ...] = -1,
    eps: float = 1e-6,
) -> Array:
    """`x` over its root mean square along `axes`, then `· gamma + beta`."""
    return normalization.rms_norm(x, gamma, beta, axes=as_axes(axes), eps=eps)


def group_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    groups: int | None = None,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance over each group of channels of `[n, c, ..]`, then `· gamma + beta` per channel.

    Raises:
        WrongInputCountError: `groups` is absent: there is no number of groups that would mean the same for all models.
    """
    given: dict[str, Any] = {} if groups is None else {"groups": groups}
    return normalization.group_norm(x, gamma, beta, **given, eps=eps)


def batch_norm(
    x: ArrayLike,
    gamma: ArrayLike | None,
    beta: ArrayLike | None,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> tuple[Array, Array, Array]:
    """Each channel with the statistics of the batch, as in training; the running statistics are state, in and out.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        gamma, beta: `[c]`; 1 and 0 if absent.
        running_mean, running_var: `[c]`, of all batches before this one.
        momentum: How far the running statistics move towards those of this batch, 0 to 1.
        eps: Added to the variance before the root.
        layout: Where the channels are.

    Returns:
        y, with the biased variance; and the running statistics to go on with, of which the variance is the unbiased one.

    Raises:
        ShapeError: A channel has fewer than two elements, or an operand is not `[c]`.

    >>> y, mean, var = batch_norm([[1.0], [3.0]], None, None, [0.0], [1.0], momentum=0.5, eps=0.0)
    >>> y.tolist(), mean.tolist(), var.tolist()
    ([[-1.0], [1.0]], [1.0], [1.5])
    """
    axis, data, affine = _channels("batch_norm", x, gamma, beta, layout)
    y, _, _, mean, var = _batch_norm.batch_norm(
        data, *affine, running_mean, running_var, axis=axis, eps=eps, momentum=momentum
    )
    return y, mean, var


def batch_norm_inference(
    x: ArrayLike,
    gamma: ArrayLike | None,
    beta: ArrayLike | None,
    mean: ArrayLike,
    var: ArrayLike,
    *,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> Array:
    """Each channel with given statistics: `(x - mean) / sqrt(var + eps) · gamma + beta`; arguments as in `batch_norm`."""
    axis, data, affine = _channels("batch_norm_inference", x, gamma, beta, layout)
    return _batch_norm.batch_norm_inference(data, *affine, mean, var, axis=axis, eps=eps)


def _channels(what: str, x: ArrayLike, gamma: Any, beta: Any, layout: Layout) -> tuple[int, Any, tuple[Any, Any]]:
    """The axis of the channels, x, and gamma and beta, or what stands for them."""
    data = operand(x)
    axis = channel_axis(what, data, layout)
    count, dtype = data.shape[axis], as_dtype(data.dtype)
    given = gamma if gamma is not None else ones((count,), dtype)
    return axis, data, (given, beta if beta is not None else zeros((count,), dtype))


# --------------------------------------------------------------------------------------- attention


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    layout: AttentionLayout = "bsd",
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    empty_row: EmptyRow = "zero",
    name: str | None = None,
) -> Array:
    """Scaled dot-product attention; see `Attention`.

    Args:
        q, k, v: `[b, s, h·d]` in layout `bsd`, `[b, s, h, d]` in `bshd`, `[b, h, s, d]` in `bhsd`.
        mask: True where a key is visible; `[b, keys]` or broadcastable to `[b, h, queries, keys]`.
        bias: Added to the scores.
        layout: How the axes are to be read; never guessed.
        num_heads, num_kv_heads: Needed in layout `bsd`; read off the operands otherwise.
        causal: Whether a query sees only keys up to its own position, aligned at the end.
        window: How many keys before its own position a query sees; implies `causal`.
        scale: Of the scores; 1/√d by default.
        softcap: c in `c·tanh(scores / c)`.
        empty_row: What a query that sees no key gives: "zero", "uniform" or "nan".
        name: A name for the node.

    Raises:
        ShapeError: The operands do not fit, or `num_heads` is needed and absent.
    """
    choice("attention: layout", layout, get_args(AttentionLayout))
    heads, kv_heads = (
        _heads("q", q, layout, num_heads),
        _heads("k", k, layout, num_heads if num_kv_heads is None else num_kv_heads),
    )
    features = shape_of(q)[-1]
    if layout == "bsd":
        if not isinstance(features, int) or features % heads:
            raise ShapeError(f"attention: {features} features do not split into {heads} heads")
        features //= heads
    if not isinstance(features, int):
        raise ShapeError(f"attention: the size of a head must be known, not {features}")
    kind: MaskKind = "sliding_window" if window is not None else "causal" if causal else "none"
    return _attention(
        q,
        k,
        v,
        mask,
        bias,
        num_heads=heads,
        head_dim=features,
        num_kv_heads=None if kv_heads == heads else kv_heads,
        layout=layout,
        mask_kind=kind,
        window=window,
        score_scale=scale,
        attn_logit_softcap=softcap,
        empty_row=empty_row,
        name=name,
    )


def _heads(name: str, x: ArrayLike, layout: AttentionLayout, given: int | None) -> int:
    """The number of heads of an operand, from its dims where they have it."""
    if layout == "bsd":
        if given is None:
            raise ShapeError(f"attention: layout bsd hides how many heads {name} has", hint="pass num_heads=")
        return whole(f"attention: the number of heads of {name}", given, least=1)
    shape = shape_of(x)
    if len(shape) != 4:
        raise ShapeError(f"attention: {name} must have 4 axes in layout {layout}, not {len(shape)}")
    heads = shape[1 if layout == "bhsd" else 2]
    if not isinstance(heads, int):
        raise ShapeError(f"attention: the number of heads of {name} must be known, not {heads}")
    return heads


def rope(
    x: ArrayLike,
    cos: ArrayLike | None = None,
    sin: ArrayLike | None = None,
    positions: ArrayLike | None = None,
    *,
    theta: float | None = None,
    layout: RopeLayout = "bsd",
    head_dim: int | None = None,
    n_rot: int | None = None,
    style: RopeStyle = "half",
) -> Array:
    """Rotary embedding: pairs of features rotated by angles that grow with the position. See `Rope`.

    Args:
        x: Queries or keys: `[b, s, h·d]` in layout `bsd`, `[b, s, h, d]` in `bshd`, `[b, h, s, d]` in `bhsd`.
        cos, sin: Tables of the angles `[rows, d/2]`; or `theta` in their place.
        positions: The row of each token, integers `[b, s]`; its place in the sequence by default.
        theta: Pair i of position p is rotated by `p · theta^(-2i/n_rot)`; 10000 in most models.
        layout: How the axes are to be read.
        head_dim: d, which is read off x unless the layout is `bsd`.
        n_rot: How many features of a head are rotated, all by default.
        style: Whether feature i is paired with the one half of them later ("half"), or with its neighbour ("interleaved").

    Raises:
        ConfigError: There are neither tables nor theta, or both; or theta is not above 0.
        ShapeError: The size of a head is not known, or the operands do not fit.

    >>> rope([[[1.0, 0.0], [1.0, 0.0]]], theta=1e4, head_dim=2).round(3).tolist()
    [[[1.0, 0.0], [0.54, 0.841]]]
    """
    choice("rope: layout", layout, get_args(RopeLayout))
    features = shape_of(x)[-1] if head_dim is None and layout != "bsd" else head_dim
    if not isinstance(features, int):
        raise ShapeError(f"rope: the size of a head must be known in layout {layout}", hint="pass head_dim=")
    if (theta is None) == (cos is None or sin is None) or (theta is not None and sin is not None):
        raise ConfigError(
            "rope: it takes tables of cosines and of sines, or theta, of which they are computed",
            hint="theta=10000.0 is what most models have",
        )
    if theta is not None:
        cos, sin, positions = rope_tables(operand(x), positions, theta, features, n_rot, layout)
    return _rope.rope(x, cos, sin, positions, head_dim=features, n_rot=n_rot, layout=layout, style=style)


def dropout(x: ArrayLike, key: Key, rate: float, *, training: bool = True) -> Array:
    """Each element 0 with a probability of `rate`, and x / (1 - rate) otherwise; `x` as it is, when not training.

    The mask is drawn from the key, in the gradient once more; it is nowhere stored.

    Args:
        x: f[..].
        key: One key; another one for each layer and step.
        rate: From 0 to 1.
        training: Whether anything is dropped.

    Raises:
        ConfigError: The rate is outside of 0..1.
        DtypeError: `x` is no float, or `key` no random key.
    """
    words = one_key("dropout", key)
    op = Dropout(rate)
    return op(operand(x), words) if flag("dropout: training", training) else operand(x)


# ------------------------------------------------------------------------------------------ losses


def cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, ignore_index: int | None = None, reduction: Reduction = "mean"
) -> Array:
    """Softmax cross-entropy of logits `[.., c]` with integer labels `[..]`.

    Args:
        logits: Unnormalised log-probabilities, classes last.
        labels: The right class of each row.
        ignore_index: A label whose rows count for nothing, neither in the sum nor in the mean's denominator.
        reduction: "mean" over rows, "sum", or "none".

    Raises:
        ConfigError: The reduction is another word.
    """
    choice("cross_entropy: reduction", reduction, REDUCTIONS)
    scores, targets = operand(logits), operand(labels)
    shape = tuple(targets.shape)
    if tuple(scores.shape[:-1]) != shape:
        raise ShapeError(
            f"cross_entropy: labels {list(shape)} do not match logits {list(scores.shape)} without classes"
        )
    rows = product(shape)
    losses = softmax_cross_entropy_with_logits(
        reshape(scores, (rows, scores.shape[-1])), reshape(targets, (rows,)), ignore_index=ignore_index
    )
    if reduction == "none":
        return reshape(losses, shape)
    if reduction == "mean" and ignore_index is None:
        return mean_axes(losses, axes=(0,))
    total = sum_axes(losses, axes=(0,))
    if reduction == "sum":
        return total
    # At least 1, so that a batch of nothing but ignored rows has loss 0.
    counted = maximum(sum_axes(not_equal(targets, ignore_index), axes=tuple(range(len(shape)))), 1)
    return total / cast(counted, to=as_dtype(total.dtype))


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, __all__)

"""Attention and position embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.nn.layers import linear
from rlx_core.ops import rope as _rope
from rlx_core.ops.arguments import choice, whole
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.attention import attention as _attention
from rlx_core.ops.attention_masks import AttentionLayout, MaskKind
from rlx_core.ops.attention_scores import EmptyRow
from rlx_core.ops.linalg import operand
from rlx_core.ops.rope import RopeLayout, RopeStyle
from rlx_core.ops.rope_tables import rope_tables

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["attention", "multi_head_attention", "rope"]


@checked_call
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    layout: AttentionLayout = "bsd",
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    is_causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    empty_row: EmptyRow = "zero",
    key_value_seq_lengths: ArrayLike | None = None,
    key_scales: ArrayLike | None = None,
    value_scales: ArrayLike | None = None,
    name: str | None = None,
) -> Array:
    """Scaled dot-product attention; see `Attention`.

    Args:
        query, key, value: `[b, s, h·d]` in layout `bsd`, `[b, s, h, d]` in `bshd`, `[b, h, s, d]` in `bhsd`.
        mask: True where a key is visible; `[b, keys]` or broadcastable to `[b, h, queries, keys]`.
        bias: Added to the scores.
        layout: The meaning of the axes; never guessed.
        num_heads, num_kv_heads: Needed in layout `bsd`; taken from the shapes otherwise.
        is_causal: Whether a query sees only keys up to its own position, aligned at the end.
        window: The number of keys before its own position that a query sees; implies `is_causal`.
        scale: The factor of the scores; 1/√d by default.
        softcap: c in `c·tanh(scores / c)`.
        empty_row: The result of a query that sees no key: "zero", "uniform" or "nan".
        key_value_seq_lengths: The number of valid keys, an integer or integers `[b]`; later keys are not visible, and are not
            read on CPUs: attention over a cache costs as much as it has keys. With `is_causal` or `window` the last query is at
            the last valid key (in JAX the first query is at the first key). A number below 0 is 0, and one above the number of
            keys is that.
        key_scales, value_scales: With keys and values of codes i8: a scale for each position and head, `[b, keys, heads]`, in
            layout `bhsd` `[b, heads, keys]`, of the query's dtype, f32 or f64. A key is its codes times its scale; see
            `QuantizedAttention`.
        name: A name for the node.

    Raises:
        ConfigError: There are scales of keys and none of values, or the other way around.
        ShapeError: The operands do not fit, or `num_heads` is needed and missing.
    """
    choice("attention: layout", layout, get_args(AttentionLayout))
    heads, kv_heads = (
        _heads("query", query, layout, num_heads),
        _heads("key", key, layout, num_heads if num_kv_heads is None else num_kv_heads),
    )
    features = shape_of(query)[-1]
    if layout == "bsd":
        if not isinstance(features, int) or features % heads:
            raise ShapeError(f"attention: {features} features do not split into {heads} heads")
        features //= heads
    if not isinstance(features, int):
        raise ShapeError(f"attention: the size of a head must be known, not {features}")
    kind: MaskKind = "sliding_window" if window is not None else "causal" if is_causal else "none"
    lengths = None if key_value_seq_lengths is None else operand(key_value_seq_lengths)
    function: Callable[..., Array] = _attention
    operands: tuple[ArrayLike | None, ...] = (query, key, value, mask, bias, lengths)
    if key_scales is not None and value_scales is not None:
        # Most programs have no codes, and do not need the module.
        from rlx_core.ops.quantized_attention import quantized_attention

        function, operands = quantized_attention, (query, key, value, key_scales, value_scales, mask, bias, lengths)
    elif key_scales is not None or value_scales is not None:
        raise ConfigError(
            "attention: codes of keys and of values have scales", hint="pass key_scales= and value_scales="
        )
    return function(
        *operands,
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


@checked_call
def multi_head_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    w_query: ArrayLike,
    w_key: ArrayLike,
    w_value: ArrayLike,
    w_out: ArrayLike,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    b_query: ArrayLike | None = None,
    b_key: ArrayLike | None = None,
    b_value: ArrayLike | None = None,
    b_out: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    is_causal: bool = False,
) -> Array:
    """Multi-head attention with its projections: `attention(q·w_query, k·w_key, v·w_value)·w_out`.

    Args:
        query: `[b, queries, d]`.
        key, value: `[b, keys, d]`; equal to the query for self-attention.
        w_query: `[d, num_heads·h]`, with heads of size h. PyTorch's, which is `[out, in]`, is passed as `w.T`.
        w_key, w_value: `[d, num_kv_heads·h]`.
        w_out: `[num_heads·h, out]`.
        num_heads: The number of heads.
        num_kv_heads: The number of heads of keys and values, which adjacent query heads share; `num_heads` by default.
        b_query, b_key, b_value, b_out: Added to the products, if given.
        mask, bias, is_causal: As for `attention`.

    Returns:
        `[b, queries, out]`.

    Raises:
        ShapeError: Operands do not fit, or the number of features is not divisible by the number of heads.

    Source:
        Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762, section 3.2.2.
    """
    sides = ((query, w_query, b_query), (key, w_key, b_key), (value, w_value, b_value))
    q, k, v = (linear(x, w, b) for x, w, b in sides)
    attended = attention(
        q, k, v, mask=mask, bias=bias, is_causal=is_causal, num_heads=num_heads, num_kv_heads=num_kv_heads
    )
    return linear(attended, w_out, b_out)


def _heads(name: str, x: ArrayLike, layout: AttentionLayout, count: int | None) -> int:
    """Return the number of heads of an operand, from its dims if the layout has it."""
    shape = shape_of(x)
    if layout == "bsd":
        if len(shape) == 4:
            raise ShapeError(
                f"attention: {name} has 4 axes, and layout bsd takes [b, s, h·d]",
                hint='say layout="bhsd" or layout="bshd", the order in which its axes are',
            )
        if count is None:
            raise ShapeError(f"attention: layout bsd hides how many heads {name} has", hint="pass num_heads=")
        return whole(f"attention: the number of heads of {name}", count, least=1)
    if len(shape) != 4:
        raise ShapeError(f"attention: {name} must have 4 axes in layout {layout}, not {len(shape)}")
    heads = shape[1 if layout == "bhsd" else 2]
    if not isinstance(heads, int):
        raise ShapeError(f"attention: the number of heads of {name} must be known, not {heads}")
    return heads


@checked_call
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
    """Rotary embedding: pairs of features rotated by angles proportional to the position. See `Rope`.

    Args:
        x: Queries or keys: `[b, s, h·d]` in layout `bsd`, `[b, s, h, d]` in `bshd`, `[b, h, s, d]` in `bhsd`.
        cos, sin: Tables of the angles `[rows, d/2]`; or `theta` instead.
        positions: The row of each token, integers `[b, s]`; its index in the sequence by default.
        theta: Pair i of position p is rotated by `p · theta^(-2i/n_rot)`; 10000 in most models.
        layout: The meaning of the axes.
        head_dim: d, which is taken from the shape of x unless the layout is `bsd`.
        n_rot: The number of features of a head that are rotated, all by default.
        style: Whether feature i is paired with the feature half of them later ("half"), or with the adjacent one
            ("interleaved").

    Raises:
        ConfigError: There are neither tables nor theta, or both; or theta is not above 0.
        ShapeError: The size of a head is unknown, or the operands do not fit.

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

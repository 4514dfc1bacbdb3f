"""Visibility of keys to queries, and conversion of a tensor in any layout to `[batch, heads, sequence, features]`.

Positions are aligned at the end: with more keys than queries the last query sees the last key, so that decoding with a cache
needs no offset. Masks and biases may have fewer axes than scores; `mask_to_scores` and `bias_to_scores` define how they are
aligned.
"""

from __future__ import annotations

from typing import Literal

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Dim, exact_quotient
from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape, TensorType
from rlx_core.ops.arithmetic import maximum, minimum
from rlx_core.ops.creation import dim_value, iota
from rlx_core.ops.linalg import permuted, reshaped
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand

AttentionLayout = Literal["bsd", "bshd", "bhsd"]
MaskKind = Literal["none", "causal", "sliding_window", "custom", "bias"]


def heads_shape(name: str, x: TensorType, layout: AttentionLayout, heads: int, head_dim: int | None) -> Shape:
    """Return the dims of an operand as `(batch, heads, sequence, features of a head)`.

    Raises:
        ShapeError: The rank, the number of heads or the size of a head does not fit.
    """
    expected = (2, 3) if layout == "bsd" else (4,)
    if x.rank not in expected:
        raise ShapeError(
            f"{name} must have {' or '.join(map(str, expected))} axes in layout {layout}, not {x.rank} ({x})"
        )
    if layout == "bsd":
        batch: Dim = 1 if x.rank == 2 else x.shape[0]
        features = x.shape[-1]
        if isinstance(features, int) and features % heads:
            raise ShapeError(f"{name}: {features} features do not split into {heads} heads ({x})")
        shape: Shape = (batch, heads, x.shape[-2], exact_quotient(features, heads))
    else:
        seq_axis, heads_axis = (1, 2) if layout == "bshd" else (2, 1)
        if x.shape[heads_axis] != heads:
            raise ShapeError(f"{name} has {x.shape[heads_axis]} heads, not {heads} ({x}, layout {layout})")
        shape = (x.shape[0], heads, x.shape[seq_axis], x.shape[3])
    if head_dim is not None and shape[3] != head_dim:
        raise ShapeError(f"{name} has heads of {shape[3]} features, not {head_dim} ({x}, layout {layout})")
    return shape


def to_heads(x: Value, layout: AttentionLayout, heads: int) -> Value:
    """Return `x` as `[batch, heads, sequence, features of a head]`."""
    batch, _, seq, features = heads_shape("x", x.type, layout, heads, None)
    if layout == "bhsd":
        return x
    return permuted(reshaped(x, (batch, seq, heads, features)), (0, 2, 1, 3))


def from_heads(x: Value, layout: AttentionLayout, rank: int) -> Value:
    """Return the inverse of `to_heads`, a tensor with `rank` axes."""
    if layout == "bhsd":
        return x
    batch, heads, seq, features = x.shape
    split = permuted(x, (0, 2, 1, 3))
    if layout == "bshd":
        return split
    return reshaped(split, (seq, heads * features) if rank == 2 else (batch, seq, heads * features))


def mask_shape(mask: TensorType) -> Shape:
    """Return the dims of a mask against `[batch, heads, queries, keys]`: a matrix is `[batch, keys]`, others align right."""
    if mask.rank == 2:
        return (mask.shape[0], 1, 1, mask.shape[1])
    return aligned_shape(mask)


def aligned_shape(x: TensorType) -> Shape:
    """Return the dims of `x`, aligned right, with ones in front up to four axes."""
    if x.rank > 4:
        raise ShapeError(f"a mask or a bias has at most 4 axes, not {x.rank} ({x})")
    return (*(1,) * (4 - x.rank), *x.shape)


def positional_visibility(kind: MaskKind, window: int | None, queries: Dim, keys: Dim) -> Value | None:
    """Return the visible keys under a positional mask kind, bool[queries, keys]; `None` if all are visible."""
    if kind not in ("causal", "sliding_window"):
        return None
    offset = keys - queries
    row = iota(axis=0, shape=(queries, 1)) + (offset if isinstance(offset, int) else dim_value(size=offset))
    column = iota(axis=1, shape=(1, keys))
    visible = column <= row
    if kind == "sliding_window":
        assert window is not None, "checked when the op is made"
        visible = where(column + window >= row, visible, False)
    return visible


def length_visibility(lengths: Value, kind: MaskKind, window: int | None, queries: Dim, keys: Dim) -> Value:
    """Return the visible keys where only the first `lengths` of them are valid, bool[b or 1, 1, queries or 1, keys].

    Under a positional mask kind queries are aligned at the end of the valid keys.
    """
    capacity = keys if isinstance(keys, int) else dim_value(size=keys)
    valid = reshaped(minimum(maximum(lengths, 0), capacity), length_shape(lengths.type))
    column = iota(axis=3, shape=(1, 1, 1, keys))
    if kind not in ("causal", "sliding_window"):
        return column < valid
    count = queries if isinstance(queries, int) else dim_value(size=queries)
    row = iota(axis=2, shape=(1, 1, queries, 1)) + (valid - count)
    visible = column <= row
    return visible if window is None else where(column + window >= row, visible, False)


def length_shape(lengths: TensorType) -> Shape:
    """Return the dims of lengths against `[batch, heads, queries, keys]`: one for all entries of the batch, or one for each."""
    return (*(lengths.shape or (1,)), 1, 1, 1)


def operand_visibility(mask: Value) -> Value:
    """Return a mask operand as bool, against scores: a bool unchanged, a float visible where it is at least 0.5."""
    shown = mask if mask.dtype is bool_ else mask >= 0.5
    return reshaped(shown, mask_shape(mask.type))


def repeat_heads(x: Value, times: int) -> Value:
    """Return each head of `[b, h, s, d]` repeated `times` times consecutively: grouped key heads for their query heads."""
    if times == 1:
        return x
    batch, heads, seq, features = x.shape
    repeated = expand(reshaped(x, (batch, heads, 1, seq, features)), (batch, heads, times, seq, features))
    return reshaped(repeated, (batch, heads * times, seq, features))

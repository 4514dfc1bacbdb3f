"""Attention as a problem: sizes, and strides by batch, head, position and feature.

Whatever the layout, an operand is four strides; masks and biases are four strides too, 0 where they broadcast.
"""

from __future__ import annotations

from typing import Final, cast

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import DType
from rlx_core.ops.attention_masks import AttentionLayout, aligned_shape, mask_shape
from rlx_core.ops.attention_scores import AttentionOp
from rlx_core.system.records import frozen

POSITION_AXES: Final[dict[AttentionLayout, int]] = {"bsd": -2, "bshd": 1, "bhsd": 2}
"""The axis of positions of an operand that has heads."""


@frozen
class HeadStrides:
    """Strides of an operand in bytes: of a batch entry, a head, a position, a feature."""

    batch: int
    head: int
    position: int
    feature: int

    @classmethod
    def of(cls, place: Place, layout: AttentionLayout, heads: int) -> HeadStrides:
        strides, shape = place.strides, place.type.shape
        if layout == "bsd":
            by_feature = strides[-1]
            of_head = shape[-1].__index__() // heads * by_feature
            return cls(strides[0] if len(strides) == 3 else 0, of_head, strides[-2], by_feature)
        batch, second, third, feature = strides
        return cls(batch, third, second, feature) if layout == "bshd" else cls(batch, second, third, feature)


@frozen
class ScoresStrides:
    """Strides of a mask or bias in bytes: of a batch entry, a head, a query, a key."""

    batch: int
    head: int
    query: int
    key: int

    @classmethod
    def of(cls, place: Place, *, is_mask: bool) -> ScoresStrides:
        aligned = mask_shape(place.type) if is_mask else aligned_shape(place.type)
        rank = len(place.strides)
        strides = (
            (place.strides[0], 0, 0, place.strides[1]) if is_mask and rank == 2 else (0,) * (4 - rank) + place.strides
        )
        return cls(*(s if d != 1 else 0 for s, d in zip(strides, aligned, strict=True)))


@frozen
class AttentionProblem:
    """One attention, or its cotangents, with known sizes, or with expressions for unknown ones.

    Attributes:
        op: The op, which has the masks, cap and scale.
        stored: The dtype of operands and results.
        dtype: The dtype of scores and sums.
        width: Features of a value.
    """

    op: AttentionOp
    stored: DType
    dtype: DType
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    features: int
    width: int

    @classmethod
    def of(cls, op: AttentionOp, layout: Layout) -> AttentionProblem:
        q, k, v = layout.operands[:3]
        assert q is not None, "queries are required"
        assert k is not None, "keys are required"
        assert v is not None, "values are required"
        shape, of_keys = (cast("tuple[int, ...]", t.type.shape) for t in (q, k))
        axis = POSITION_AXES[op.layout]
        width = v.type.shape[-1].__index__() // (op.kv_heads if op.layout == "bsd" else 1)
        dtype = q.type.dtype
        return cls(
            op, dtype, dtype.accumulator, shape[0] if len(shape) > 2 else 1, op.num_heads, op.kv_heads,
            shape[axis], of_keys[axis], op.head_dim, width,
        )  # fmt: skip

    def __str__(self) -> str:
        op = self.op
        cap = None if op.attn_logit_softcap is None else f"cap {op.attn_logit_softcap:g}"
        window = None if op.window is None else f"window {op.window}"
        parts = [None if op.mask_kind == "none" else op.mask_kind, window, cap]
        shared = f" over {self.kv_heads}" if self.kv_heads != self.heads else ""
        sizes = f"{self.stored}[{self.batch}, {self.heads}{shared}, {self.queries}, {self.features}]"
        keys = f"{self.keys} keys" if self.width == self.features else f"{self.keys} keys of {self.width}"
        return " ".join([op.name.rpartition(".")[2], sizes, "on", keys, *(word for word in parts if word)])

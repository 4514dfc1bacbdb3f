"""Attention as numbers: sizes, strides by batch, head, position and feature, and how the work is cut up.

Whatever the layout, an operand is four strides; masks and biases are four strides too, 0 where they broadcast. A head's
queries are cut into row tiles and its keys into panels, as in a matrix product.
"""

from __future__ import annotations

from attrs import frozen

from rlx_core.ir.dtypes import DType
from rlx_core.ops.attention_masks import AttentionLayout, aligned_shape, mask_shape
from rlx_core.ops.attention_scores import AttentionOp
from rlx_cpu.native.contract import MOST_PARTS, Layout, Place
from rlx_cpu.native.gemm_tiles import Cut, cut, tile_for
from rlx_cpu.native.isa import Isa

__all__ = ["AttentionProblem", "HeadStrides", "ScoresStrides"]

BLOCK_NBYTES = 2048
"""Bytes of a row of scores that are in flight at once: a tile's worth of rows stays in the nearest cache."""

ITEMS = 32
"""At least so many items, where there are enough queries."""

FEWEST_PARTS = 8
"""Parts below which a few threads would not have equal shares."""

TILES = 8
"""Row tiles of an item, at most."""


@frozen
class HeadStrides:
    """Where an operand's elements are: bytes for a batch entry, a head, a position, a feature."""

    batch: int
    head: int
    position: int
    feature: int

    @classmethod
    def of(cls, place: Place, layout: AttentionLayout, heads: int) -> HeadStrides:
        strides, shape = place.strides, place.type.static_shape
        if layout == "bsd":
            by_feature = strides[-1]
            return cls(strides[0] if len(strides) == 3 else 0, shape[-1] // heads * by_feature, strides[-2], by_feature)
        batch, second, third, feature = strides
        return cls(batch, third, second, feature) if layout == "bshd" else cls(batch, second, third, feature)


@frozen
class ScoresStrides:
    """Where a mask or bias is for a score: bytes for a batch entry, a head, a query, a key."""

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
    """One attention, with sizes known.

    Attributes:
        dtype: Of scores and sums.
        rows: Row tiles over the queries of a head.
        panels: Panels over its keys, in vectors.
        block: Panels of a block of keys.
        outputs: Panels over the features of a value, in vectors.
        group: Row tiles of an item.
    """

    dtype: DType
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    features: int
    width: int
    lanes: int
    rows: Cut
    panels: Cut
    block: int
    outputs: Cut
    group: int

    @classmethod
    def of(cls, op: AttentionOp, layout: Layout, isa: Isa) -> AttentionProblem:
        q, k, v = layout.operands[:3]
        assert q is not None, "queries are required"
        assert k is not None, "keys are required"
        assert v is not None, "values are required"
        shape = q.type.static_shape
        axis = {"bsd": -2, "bshd": 1, "bhsd": 2}[op.layout]
        batch = shape[0] if len(shape) > 2 else 1
        queries, keys = shape[axis], k.type.static_shape[axis]
        is_packed = op.layout == "bsd"
        width = v.type.static_shape[-1] // (op.kv_heads if is_packed else 1)
        dtype = q.type.dtype.accumulator
        lanes = isa.lanes(dtype)
        tile = tile_for(max(queries, 1), max(keys, 1), lanes, isa.registers)
        rows = cut(queries, tile.rows)
        panels = cut(-(-keys // lanes), tile.vectors)
        # As many accumulators as registers allow beside one vector of A and one of B for each column.
        most = min((isa.registers - 1) // (tile.rows + 1), 8)
        block = max(1, BLOCK_NBYTES // (panels.size * lanes * dtype.itemsize))
        group = TILES
        while group > 1 and batch * op.num_heads * -(-rows.pieces // group) < ITEMS:
            group //= 2
        return cls(
            dtype, batch, op.num_heads, op.kv_heads, queries, keys, op.head_dim, width, lanes,
            rows, panels, min(block, max(panels.pieces, 1)), cut(-(-width // lanes), most), group,
        )  # fmt: skip

    @property
    def row_items(self) -> int:
        """Items of a head."""
        return -(-self.rows.pieces // self.group)

    @property
    def items(self) -> int:
        return self.batch * self.heads * self.row_items

    @property
    def parts(self) -> int:
        """Into how many parts the items are cut: heads that share keys stay together where there are enough of them."""
        shared = self.batch * self.kv_heads
        return max(1, min(MOST_PARTS, shared if shared >= FEWEST_PARTS else self.items))

    @property
    def blocks(self) -> int:
        """Blocks of keys."""
        return -(-self.panels.pieces // self.block)

    @property
    def block_columns(self) -> int:
        """Keys of the widest block, whole vectors."""
        return self.panels.size * self.block * self.lanes

    @property
    def output_columns(self) -> int:
        """Features of a value, whole vectors."""
        return self.outputs.start(self.outputs.pieces) * self.lanes

    @property
    def key_columns(self) -> int:
        """All keys, whole vectors."""
        return self.panels.start(self.panels.pieces) * self.lanes

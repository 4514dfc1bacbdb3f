"""How attention is cut up: a head's queries into row tiles and its keys into panels, as in a matrix product."""

from __future__ import annotations

from attrs import frozen

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.cuts import Cut, cut
from rlx_cpu.native.contract import MOST_PARTS
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.machine import AttentionSizes
from rlx_cpu.native.products.gemm_tiles import tile_for

__all__ = ["AttentionCut"]


@frozen
class AttentionCut:
    """The cut of one attention.

    Attributes:
        rows: Row tiles over the queries of a head.
        panels: Panels over its keys, in vectors.
        block: Panels of a block of keys.
        outputs: Panels over the features of a value, in vectors.
        group: Row tiles of an item.
    """

    problem: AttentionProblem
    sizes: AttentionSizes
    lanes: int
    rows: Cut
    panels: Cut
    block: int
    outputs: Cut
    group: int

    @classmethod
    def of(cls, problem: AttentionProblem, isa: Isa) -> AttentionCut:
        p, lanes, sizes = problem, isa.lanes(problem.dtype), isa.machine.attention
        tile = tile_for(max(p.queries, 1), max(p.keys, 1), lanes, isa.registers)
        rows = cut(p.queries, tile.rows)
        panels = cut(-(-p.keys // lanes), tile.vectors)
        # As many accumulators as registers allow beside one vector of A and one of B for each column.
        most = min((isa.registers - 1) // (tile.rows + 1), 8)
        block = max(1, sizes.row_nbytes // (panels.size * lanes * p.dtype.itemsize))
        group = sizes.tiles
        while group > 1 and p.batch * p.heads * -(-rows.pieces // group) < sizes.items:
            group //= 2
        block, outputs = min(block, max(panels.pieces, 1)), cut(-(-p.width // lanes), most)
        return cls(p, sizes, lanes, rows, panels, block, outputs, group)

    @property
    def row_items(self) -> int:
        """Items of a head."""
        return -(-self.rows.pieces // self.group)

    @property
    def items(self) -> int:
        return self.problem.batch * self.problem.heads * self.row_items

    @property
    def parts(self) -> int:
        """Into how many parts the items are cut: heads that share keys stay together where there are enough of them."""
        shared = self.problem.batch * self.problem.kv_heads
        return max(1, min(MOST_PARTS, shared if shared >= self.sizes.fewest_parts else self.items))

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
